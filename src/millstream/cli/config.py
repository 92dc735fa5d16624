"""`millstream config`: what the settings of a broker are, where they come from, and which exist.

Their declarations are imported when they are needed, so that help comes at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.printout import AsJson, print_json, print_lines, print_table
from millstream.cli.remote import ask_rest

if TYPE_CHECKING:
    from millstream.settings.sections import Place

commands = typer.Typer(no_args_is_help=True, help="Show, check and look up settings.")

ConfigFile = Annotated[
    str | None,
    typer.Option(help="TOML file with settings.", show_default="MILLSTREAM_CONFIG", metavar="FILE"),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A setting, as log.segment.bytes=1024; over file and environment. May be repeated.",
        metavar="SECTION.NAME=VALUE",
    ),
]


@commands.command()
def show(
    config: ConfigFile = None,
    assignments: Assignments = None,
    url: Annotated[
        str | None,
        typer.Option(help="Ask the broker that runs there instead.", metavar="URL"),
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what is not at its default.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print settings, each with where it comes from: those that `serve` would have here."""
    from millstream.settings.overrides import text_of
    from millstream.settings.sections import DEFAULT_ORIGIN

    shown = _of_running(url) if url is not None else _of_sources(config, assignments or ())
    if changed:
        shown = [each for each in shown if each["origin"] != DEFAULT_ORIGIN]
    if as_json:
        for each in shown:
            print_json(each)
        return
    print_table(
        ["setting", "value", "from"],
        [(f"{e['section']}.{e['name']}", text_of(e["value"]), e["origin"]) for e in shown],
        elastic=["from"],
    )


def _of_sources(config: str | None, assignments: Iterable[str]) -> list[dict[str, Any]]:
    from millstream.settings.loader import load
    from millstream.settings.sections import PLACES

    settings = load(config, environment=os.environ, assignments=assignments)
    return [_shape(place, place.value(settings), place.origin(settings)) for place in PLACES]


def _of_running(url: str) -> list[dict[str, Any]]:
    """Of a broker of any version: what it does not have is left out."""
    from millstream.settings.sections import PLACES

    answer = ask_rest(url, lambda rest: rest.ask("GET", "/api/settings"))
    told = {
        f"{section['section']}.{each['name']}": each
        for section in answer["sections"]
        for each in section["settings"]
    }
    return [
        _shape(place, place.setting.parse(each["value"]), each["origin"])
        for place in PLACES
        if (each := told.get(place.key)) is not None
    ]


def _shape(place: Place, value: object, origin: str) -> dict[str, Any]:
    return {
        "section": place.section,
        "name": place.setting.name,
        "value": sorted(value) if isinstance(value, frozenset) else value,
        "origin": origin,
        "variable": place.variable,
        "needs_restart": place.setting.needs_restart,
    }


@commands.command()
def check(
    file: Annotated[
        str | None,
        typer.Argument(help="TOML file with settings.", show_default="MILLSTREAM_CONFIG"),
    ] = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a file, or with the environment; exit with 1 if something is."""
    from millstream.errors import InvalidSetting, InvalidSettings
    from millstream.settings.loader import load

    try:
        settings = load(file, environment=os.environ, assignments=assignments or ())
    except (InvalidSetting, InvalidSettings) as error:
        if not as_json:
            raise
        for each in error.problems if isinstance(error, InvalidSettings) else [error]:
            # A file can hold what JSON has no word for, such as a date.
            shape = {"source": each.source, "name": each.name, "value": repr(each.value)}
            print_json({**shape, "expected": each.expected})
        raise typer.Exit(1) from None
    if as_json:
        return
    print_lines(f"good; set here, and not left at the default: {len(settings.origins)}")


@commands.command()
def reference(
    toml: Annotated[bool, typer.Option("--toml", help="As a file with everything in it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print all settings there are, with defaults, what is allowed and what they mean."""
    from millstream.settings.reference import reference_file, reference_page
    from millstream.settings.sections import DEFAULT_ORIGIN, PLACES

    if as_json:
        for place in PLACES:
            shape = _shape(place, place.setting.default, DEFAULT_ORIGIN)
            told = {"allowed": place.setting.domain.expected, "meaning": place.setting.doc}
            print_json({**shape, **told})
        return
    print_lines((reference_file() if toml else reference_page()).rstrip("\n"))
