"""Apache BookKeeper's own compiled tests against bookies in processes of their own.

    python -m tests.apache_suite                          all of the plan, with our bookies
    python -m tests.apache_suite TestFencing BookieRec    classes whose names contain these texts
    python -m tests.apache_suite BookKeeperTest#testAsync one test, or all whose names begin so
    python -m tests.apache_suite --bookies apache         the harness itself, with Apache's bookies as processes

Needs a JDK and Maven. ``classes.toml`` says which tests are run, and why the others are not applicable.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.fetch import jars
from benchmarks.speed.measure import SkippedError
from bk_spark.local.zookeeper_server import find_java
from tests.apache_suite.bookies import APACHE, OURS, apache_bookie, our_bookie, with_archive
from tests.apache_suite.plan import PACKAGE, Plan, read_plan
from tests.apache_suite.report import Report, class_report
from tests.apache_suite.runner import (
    CLASS,
    Result,
    Suite,
    SuiteTest,
    compile_harness,
    extract_files,
    merge,
    method_of,
    write_hosts,
)

POM = Path(__file__).resolve().parent / "pom.xml"
TESTS_JAR = "bookkeeper-server-4.17.3-tests.jar"


def main() -> int:
    args = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of what ends the JVM
    with _working_directory(args.keep) as directory:
        try:
            suite, tests = _prepare(args.bookies, directory)
        except SkippedError as reason:
            print(f"Apache's tests are not to be had: {reason}", file=sys.stderr)
            return 2
        plan = read_plan()
        if problems := plan.problems(tests):
            print("\n".join(problems), file=sys.stderr)
            return 2
        chosen = _chosen(plan, tests, args.names)
        if args.list:
            print("\n".join(f"{name.removeprefix(PACKAGE)}#{method}" for name, methods in chosen for method in methods))
            return 0
        report = _run(suite, plan, tests, chosen, args, directory)
    print(report.table())
    if args.json:
        Path(args.json).write_text(report.as_json() + "\n")
    return 0 if report.percentage >= args.least else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.apache_suite", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CLASS[#TEST]", help="parts of class names (default: all)")
    parser.add_argument("--bookies", choices=(OURS, APACHE), default=OURS, help="whose bookies (default %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write every result there, too")
    parser.add_argument("--keep", metavar="DIR", help="a new directory for logs, which stay")
    parser.add_argument("--tries", type=int, choices=(1, 2), default=2, help="run what failed again (default %(default)s)")
    text = "fail if a smaller percentage of the applicable tests passes (default %(default)g)"
    parser.add_argument("--least", type=float, default=95.0, metavar="PERCENT", help=text)
    parser.add_argument("--list", action="store_true", help="only print which tests would be run")
    return parser.parse_args()


@contextmanager
def _working_directory(keep: str | None) -> Iterator[Path]:
    if keep is not None:
        directory = Path(keep).resolve()
        directory.mkdir(parents=True)
        yield directory
    else:
        with tempfile.TemporaryDirectory(prefix="apache-suite-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)


def _prepare(bookies: str, directory: Path) -> tuple[Suite, dict[str, SuiteTest]]:
    """Compile the harness. It stands first on the class path: one of its classes replaces Apache's."""
    found = jars(POM)
    harness = compile_harness(os.pathsep.join(map(str, found)), directory)
    tests_jar = next(jar for jar in found if jar.name == TESTS_JAR)
    class_path = os.pathsep.join(map(str, [harness, *found]))
    files, hosts = extract_files(tests_jar, directory / "files"), write_hosts(directory / "hosts")
    java = find_java()
    suite = Suite(java, class_path, files, hosts, our_bookie() if bookies == OURS else apache_bookie(java, class_path))
    tests = suite.tests_of(tests_jar)
    return suite if bookies == OURS else with_archive(suite, directory), tests


def _chosen(plan: Plan, tests: dict[str, SuiteTest], names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The classes to run, each with its applicable methods."""
    chosen: dict[str, list[str]] = {}
    for name in plan.classes:
        methods = sorted(method for method in tests[name].methods if plan.reason(name, method) is None)
        wanted = [method for method in methods if not names or any(_is_meant(name, method, text) for text in names)]
        if wanted:
            chosen[name] = wanted
    return list(chosen.items())


def _is_meant(name: str, method: str, text: str) -> bool:
    of_class, _, of_method = text.partition("#")
    return of_class in name and method.startswith(of_method)


def _run(
    suite: Suite,
    plan: Plan,
    tests: dict[str, SuiteTest],
    chosen: Sequence[tuple[str, list[str]]],
    args: argparse.Namespace,
    directory: Path,
) -> Report:
    reports = []
    for number, (name, methods) in enumerate(chosen, 1):
        begun = time.monotonic()
        results = _run_class(suite, tests[name], methods, directory / name, args)
        report = class_report(plan, tests[name], results)
        counts = f"{report.count('PASSED')} passed, {report.count('FAILED')} failed"
        print(f"{number}/{len(chosen)} {name}: {counts}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        reports.append(report)
    if not args.names:
        whole = sorted(name for name, method in plan.left_out if method == "*")
        reports += [class_report(plan, tests[name], []) for name in whole]
    return Report(args.bookies, tuple(reports))


def _run_class(suite: Suite, test: SuiteTest, methods: list[str], directory: Path, args: argparse.Namespace) -> list[Result]:
    results = suite.run(test.name, directory / "try-1", methods)
    failed = [result.test for result in results if result.outcome == "FAILED"]
    if failed and args.tries > 1:
        results = merge(results, suite.run(test.name, directory / "try-2", methods if CLASS in failed else failed))
    if args.keep is None:
        shutil.rmtree(directory, ignore_errors=True)
    ended = {result.test for result in results}
    lost = [name for name in test.tests if method_of(name) in methods and name not in ended]
    return results + [Result(test.name, name, "FAILED", 0, "it was not reached") for name in lost]


if __name__ == "__main__":
    sys.exit(main())
