"""The tidy rules: what no linter knows about this project.

A rule takes one file and yields a line for each thing that is wrong with it. A project rule
takes all files at once.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator

from tests.tidy.source import Source

Rule = Callable[[Source], Iterator[str]]
ProjectRule = Callable[[list[Source]], Iterator[str]]

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 600
MAX_TEST_FILE_LINES = 600

# Modules and calls that make a run depend on when and where it happens.
_NONDETERMINISTIC_MODULES = {"time", "random", "secrets"}
_NONDETERMINISTIC_CALLS = {
    "datetime.now",
    "datetime.today",
    "datetime.utcnow",
    "date.today",
    "os.urandom",
    "uuid.uuid1",
    "uuid.uuid4",
}
_MAY_ASK_THE_SYSTEM = {"src/millstream/clock.py", "src/millstream/identity.py"}

_VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc"}
_MAY_LEAVE_A_TEST_OUT = re.compile(r"\bpytest\.(?:mark\.)?(?:skip|skipif|importorskip|xfail)\b")
_PATCHES = {"setattr", "delattr", "patch"}
_UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b")
_MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|work|Users|opt/wheels)/")
_PIN = re.compile(r"^[A-Za-z0-9_.\-\[\]]+==[A-Za-z0-9_.+!]+(?: ;[^#]*)?(?:\s+#.*)?$")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_NAMED_DOCUMENT = re.compile(r"\bdocs/[\w/.-]+\.md\b")


def time_and_randomness_come_as_arguments(source: Source) -> Iterator[str]:
    if not source.is_shipped or source.path in _MAY_ASK_THE_SYSTEM:
        return
    for node in source.nodes:
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {node.module or ""}
        elif isinstance(node, ast.Attribute):
            called = ".".join(ast.unparse(node).split(".")[-2:])
            if called in _NONDETERMINISTIC_CALLS:
                yield f"{source.path}:{node.lineno}: {called}: take a clock or an id instead"
            continue
        else:
            continue
        for name in sorted(names & _NONDETERMINISTIC_MODULES):
            yield f"{source.path}:{node.lineno}: import of {name}: take a clock or a seed instead"


def blind_except_only_at_the_outer_edge(source: Source) -> Iterator[str]:
    """Allowed where the handler raises again, or a comment says whose outer edge it is."""
    if not source.is_shipped:
        return
    for node in source.nodes:
        if not isinstance(node, ast.ExceptHandler) or not _is_blind(node):
            continue
        last = node.body[-1]
        raises_again = isinstance(last, ast.Raise) and last.exc is None
        head = " ".join(source.lines[node.lineno - 1 : node.body[0].lineno]).lower()
        if not raises_again and "outer edge" not in head:
            yield f"{source.path}:{node.lineno}: catches everything: name what you expect"


def _is_blind(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(k, ast.Name) and k.id in {"Exception", "BaseException"} for k in kinds)


def only_the_command_line_prints(source: Source) -> Iterator[str]:
    if not source.is_shipped or source.path.startswith("src/millstream/cli/"):
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            yield f"{source.path}:{node.lineno}: print: only src/millstream/cli prints"


def nothing_is_left_for_later(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines, start=1):
        if found := _UNFINISHED.search(line):
            yield f"{source.path}:{number}: {found[0]}: do it, or write it down elsewhere"


def no_path_of_one_machine(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines, start=1):
        if found := _MACHINE_PATH.search(line):
            yield f"{source.path}:{number}: {found[0]}: a path of one machine"


def files_are_named_by_a_noun(source: Source) -> Iterator[str]:
    stem = posixpath.splitext(posixpath.basename(source.path))[0]
    if source.is_python and not _VAGUE_NAMES.isdisjoint(stem.split("_")):
        yield f"{source.path}: says nothing about its content: name the one thing it holds"


def modules_say_what_they_are(source: Source) -> Iterator[str]:
    if source.is_python and source.text.strip() and not ast.get_docstring(source.tree):
        yield f"{source.path}: has no docstring"


def functions_fit_on_a_screen(source: Source) -> Iterator[str]:
    if not source.is_python:
        return
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > MAX_FUNCTION_LINES:
                yield f"{source.path}:{node.lineno}: {node.name} has {size} lines"


def files_are_short(source: Source) -> Iterator[str]:
    limit = MAX_TEST_FILE_LINES if source.is_test else MAX_FILE_LINES
    if source.is_python and len(source.lines) > limit:
        yield f"{source.path}: has {len(source.lines)} lines, over {limit}"


def no_test_is_skipped(source: Source) -> Iterator[str]:
    """A skipped test proves nothing, and nobody reads why: a run is green only if all tests ran."""
    if not source.is_test or not source.is_python:
        return
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and _MAY_LEAVE_A_TEST_OUT.search(ast.unparse(node)):
            advice = "mark what the test needs, with pytest.mark.needs (tests/fakes/programs.py)"
            yield f"{source.path}:{node.lineno}: {ast.unparse(node)}: {advice}"


def tests_patch_public_names_only(source: Source) -> Iterator[str]:
    """A test that replaces a private name breaks with every redesign of what it tests."""
    if not source.is_test or not source.is_python:
        return
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        if function.split(".")[-1] not in _PATCHES and not function.endswith("patch.object"):
            continue
        for argument in node.args[:2]:
            name = argument.value if isinstance(argument, ast.Constant) else None
            if isinstance(name, str) and any(map(_is_private, name.split("."))):
                advice = "replace a public name, or pass the value as an argument"
                yield f"{source.path}:{node.lineno}: patch of {name}: {advice}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def lock_files_hold_pins_alone(source: Source) -> Iterator[str]:
    """No registry, no file, no option: only names and versions."""
    if not source.path.startswith("requirements/"):
        return
    for number, line in enumerate(source.lines, start=1):
        is_comment = line.strip() == "" or line.lstrip().startswith("#")
        if "://" in line or not (is_comment or _PIN.match(line)):
            yield f"{source.path}:{number}: not a plain pin"


def every_module_is_used(sources: list[Source]) -> Iterator[str]:
    modules = {_module_name(source.path): source for source in sources if source.is_shipped}
    # Others find it there: the entry points of a plugin.
    declared = "".join(source.text for source in sources if source.path == "pyproject.toml")
    used = {name for name in modules if f'"{name}"' in declared}
    for name, source in modules.items():
        used |= _imported(source) - {name}
    for name, source in modules.items():
        entry = source.path.endswith(("/__init__.py", "/__main__.py"))
        if not entry and name not in used:
            yield f"{source.path}: no other module imports it"


def _module_name(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(source: Source) -> set[str]:
    found = set()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def links_lead_somewhere(sources: list[Source]) -> Iterator[str]:
    paths = {source.path for source in sources}
    known = paths | {parent for path in paths for parent in _parents(path)}
    anchors = {s.path: set(_anchors(s)) for s in sources if s.path.endswith(".md")}
    for source in sources:
        if source.path not in anchors:
            continue
        for target in _LINK.findall(source.text):
            if "://" in target or target.startswith("mailto:"):
                continue
            file, _, anchor = target.partition("#")
            folder = posixpath.dirname(source.path)
            resolved = posixpath.normpath(posixpath.join(folder, file)) if file else source.path
            missing_anchor = anchor and anchor not in anchors.get(resolved, {anchor})
            if resolved not in known or missing_anchor:
                yield f"{source.path}: link to {target} leads nowhere"


def _parents(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path


def _anchors(source: Source) -> Iterator[str]:
    for line in source.lines:
        if line.startswith("#"):
            heading = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            yield heading.replace(" ", "-")


def named_documents_exist(sources: list[Source]) -> Iterator[str]:
    """A docstring that sends the reader to a document must not lie."""
    paths = {source.path for source in sources}
    for source in sources:
        if source.is_shipped:
            for name in sorted(set(_NAMED_DOCUMENT.findall(source.text)) - paths):
                yield f"{source.path}: names {name}, which does not exist"


RULES: Iterable[Rule] = (
    time_and_randomness_come_as_arguments,
    blind_except_only_at_the_outer_edge,
    only_the_command_line_prints,
    nothing_is_left_for_later,
    no_path_of_one_machine,
    files_are_named_by_a_noun,
    modules_say_what_they_are,
    functions_fit_on_a_screen,
    files_are_short,
    no_test_is_skipped,
    tests_patch_public_names_only,
    lock_files_hold_pins_alone,
)
PROJECT_RULES: Iterable[ProjectRule] = (
    every_module_is_used,
    links_lead_somewhere,
    named_documents_exist,
)
