"""The project keeps its own rules, and each rule is able to fail."""

from __future__ import annotations

import pytest

from tests.tidy import rules
from tests.tidy.rules import PROJECT_RULES, RULES, ProjectRule, Rule
from tests.tidy.source import Source, project

DOCSTRING = '"""A module."""\n'


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return project()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_file_keeps_rule(rule: Rule, sources: list[Source]) -> None:
    broken = [line for source in sources for line in rule(source)]
    if broken:
        pytest.fail("\n".join(broken), pytrace=False)


@pytest.mark.parametrize("rule", PROJECT_RULES, ids=lambda rule: rule.__name__)
def test_project_keeps_rule(rule: ProjectRule, sources: list[Source]) -> None:
    broken = list(rule(sources))
    if broken:
        pytest.fail("\n".join(broken), pytrace=False)


def test_project_is_really_read(sources: list[Source]) -> None:
    paths = {source.path for source in sources}
    assert {"src/millstream/app.py", "README.md", "requirements/base.txt", "Makefile"} <= paths


BROKEN = [
    (rules.time_and_randomness_come_as_arguments, "src/m/a.py", "import time\n"),
    (rules.time_and_randomness_come_as_arguments, "src/m/a.py", "from random import choice\n"),
    (rules.time_and_randomness_come_as_arguments, "src/m/a.py", "now = datetime.now()\n"),
    (rules.time_and_randomness_come_as_arguments, "src/m/a.py", "x = datetime.datetime.now()\n"),
    (rules.blind_except_only_at_the_outer_edge, "src/m/a.py", "try:\n    f()\nexcept:\n    g()\n"),
    (
        rules.blind_except_only_at_the_outer_edge,
        "src/m/a.py",
        "try:\n    f()\nexcept (OSError, Exception):\n    g()\n",
    ),
    (rules.only_the_command_line_prints, "src/millstream/app.py", "print('hello')\n"),
    (rules.nothing_is_left_for_later, "docs/a.md", "TO" + "DO: write this\n"),
    (rules.nothing_is_left_for_later, "src/m/a.py", "x = 1  # FIX" + "ME\n"),
    (rules.no_path_of_one_machine, "docs/a.md", "see /ho" + "me/me/notes\n"),
    (rules.files_are_named_by_a_noun, "src/m/string_utils.py", DOCSTRING),
    (rules.files_are_named_by_a_noun, "tests/unit/common.py", DOCSTRING),
    (rules.modules_say_what_they_are, "src/m/a.py", "x = 1\n"),
    (rules.functions_fit_on_a_screen, "src/m/a.py", "def f():\n" + "    x = 1\n" * 70),
    (rules.files_are_short, "src/m/a.py", "x = 1\n" * 601),
    (rules.files_are_short, "tests/a.py", "x = 1\n" * 601),
    (rules.no_test_is_skipped, "tests/a.py", "pytest.skip('no java')\n"),
    (rules.no_test_is_skipped, "tests/a.py", "kio = pytest.importorskip('kio')\n"),
    (rules.no_test_is_skipped, "tests/a.py", "@pytest.mark.skipif(X)\ndef f(): pass\n"),
    (rules.no_test_is_skipped, "tests/a.py", "pytestmark = pytest.mark.xfail\n"),
    (rules.tests_patch_public_names_only, "tests/a.py", "monkeypatch.setattr(m, '_f', g)\n"),
    (rules.tests_patch_public_names_only, "tests/a.py", "patched.setattr('m.a._LIMIT', 3)\n"),
    (rules.tests_patch_public_names_only, "tests/a.py", "monkeypatch.delattr(A, '_f')\n"),
    (rules.tests_patch_public_names_only, "tests/a.py", "with patch.object(A, '_f', g): h()\n"),
    (rules.tests_patch_public_names_only, "tests/a.py", "with mock.patch('m._f'): h()\n"),
    (rules.lock_files_hold_pins_alone, "requirements/a.txt", "lz4>=4\n"),
    (rules.lock_files_hold_pins_alone, "requirements/a.txt", "--index-url=https://a.b/c\n"),
    (rules.lock_files_hold_pins_alone, "requirements/a.txt", "lz4==4.0 # from https://a.b\n"),
    (rules.lock_files_hold_pins_alone, "requirements/a.txt", "lz4 @ file:///tmp/lz4.whl\n"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN)
def test_rule_reports_a_broken_file(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))


def test_every_rule_has_a_broken_file() -> None:
    assert {rule for rule, _, _ in BROKEN} == set(RULES)


KEPT = [
    (rules.time_and_randomness_come_as_arguments, "src/millstream/clock.py", "import time\n"),
    (rules.time_and_randomness_come_as_arguments, "src/m/a.py", "now = clock.now()\n"),
    (
        rules.blind_except_only_at_the_outer_edge,
        "src/m/a.py",
        "try:\n    f()\nexcept BaseException:\n    g()\n    raise\n",
    ),
    (
        rules.blind_except_only_at_the_outer_edge,
        "src/m/a.py",
        "try:\n    f()\nexcept Exception as e:\n    # Outer edge of the cleaner.\n    log(e)\n",
    ),
    (rules.only_the_command_line_prints, "src/millstream/cli/serve.py", "print('hello')\n"),
    (rules.modules_say_what_they_are, "src/m/a.py", DOCSTRING),
    (rules.functions_fit_on_a_screen, "src/m/a.py", "def f():\n" + "    x = 1\n" * 69),
    (rules.files_are_short, "src/m/a.py", "x = 1\n" * 600),
    (rules.no_test_is_skipped, "tests/a.py", "@pytest.mark.needs('kcat')\ndef f(): pass\n"),
    (rules.no_test_is_skipped, "tests/a.py", "markers.skip()\n"),
    (rules.tests_patch_public_names_only, "tests/a.py", "monkeypatch.setattr(m, 'f', g)\n"),
    (rules.tests_patch_public_names_only, "tests/a.py", "client.patch('/a', json='_b')\n"),
    (rules.lock_files_hold_pins_alone, "requirements/a.txt", "a-b==4.0 ; x == 'y'  # via c\n"),
]


@pytest.mark.parametrize(("rule", "path", "text"), KEPT)
def test_rule_leaves_a_good_file_alone(rule: Rule, path: str, text: str) -> None:
    assert not list(rule(Source(path, text)))


def test_module_that_nobody_imports_is_reported() -> None:
    used = Source("src/m/used.py", DOCSTRING)
    dead = Source("src/m/dead.py", "import m.dead\n")
    entry = Source("src/m/__main__.py", "from m import used\n")
    plugin = Source("src/m/plugin.py", '"""One."""\n')
    project = Source("pyproject.toml", '[project.entry-points.pytest11]\nm = "m.plugin"\n')
    assert list(rules.every_module_is_used([used, dead, entry, plugin, project])) == [
        "src/m/dead.py: no other module imports it"
    ]


@pytest.mark.parametrize(
    ("link", "is_good"),
    [
        ("other.md", True),
        ("other.md#the-title-of-it", True),
        ("../README.md", True),
        ("../docs", True),
        ("https://example.org/missing", True),
        ("missing.md", False),
        ("other.md#missing", False),
        ("#missing", False),
    ],
)
def test_link_between_documents_is_followed(link: str, is_good: bool) -> None:
    documents = [
        Source("docs/page.md", f"See [this]({link}).\n"),
        Source("docs/other.md", "# The title, of it\n"),
        Source("README.md", "# Top\n"),
    ]
    assert (not list(rules.links_lead_somewhere(documents))) == is_good


def test_named_document_that_does_not_exist_is_reported() -> None:
    module = Source("src/m/a.py", '"""Format: docs/formats/a.md."""\n')
    document = Source("docs/formats/a.md", "# A\n")
    assert list(rules.named_documents_exist([module]))
    assert not list(rules.named_documents_exist([module, document]))
