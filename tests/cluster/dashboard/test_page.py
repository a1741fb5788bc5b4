"""The page in a real browser, against a real cluster with a lost bookie."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("selenium", reason="no selenium: pip install 'bk-spark[test]'")

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from bk_spark.dashboard.server import Dashboard
from bk_spark.log.stored.values import CommittedLedger
from tests.cluster.dashboard.browser import headless, missing, resize
from tests.cluster.dashboard.lively_cluster import LOG, MARKUP, Lively, load
from tests.cluster.dashboard.tiered_log import SETTING, tiered_log

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is one")

VIEWS = ("#/", "#/bookies", "#/bookie/{lost}", "#/ledgers", "#/logs", "#/underreplicated", f"#/log/{LOG}")
NARROW = 400


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with headless(1280, 900) as browser:
        yield browser


@pytest.fixture
def page(browser: Chrome, dashboard: Dashboard) -> Iterator[Chrome]:
    """The overview, loaded anew; whatever the test does, the browser had nothing to complain of."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(dashboard.url)
    _until(browser, lambda: _heading(browser) == "Overview" and "added" in _main(browser))
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] not in ("INFO", "DEBUG")] == []


@pytest.fixture
def scripts(browser: Chrome, dashboard: Dashboard) -> Chrome:
    """The functions of the page, in whatever view a test left it."""
    if not browser.current_url.startswith(dashboard.url):
        browser.get(dashboard.url)
    return browser


def _until(browser: Chrome, is_so: Callable[[], object]) -> Any:
    return WebDriverWait(browser, 20, poll_frequency=0.05).until(lambda _: is_so())


def _find(browser: Chrome, selector: str) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, selector)


def _text(browser: Chrome, selector: str) -> str:
    """Read by a script in one go: an element that was found may be replaced before its text is asked for."""
    return str(browser.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector))


def _main(browser: Chrome) -> str:
    return _text(browser, "main")


def _heading(browser: Chrome) -> str:
    return _text(browser, "h1").strip()


def _click(browser: Chrome, text: str) -> None:
    browser.find_element(By.PARTIAL_LINK_TEXT, text).click()


def _show(browser: Chrome, place: str, heading: str) -> None:
    browser.execute_script("location.hash = arguments[0]", place)
    _until(browser, lambda: browser.execute_script("return document.querySelector('main').dataset.view") == place)
    assert _heading(browser).startswith(heading)


def _views(lively: Lively) -> list[str]:
    return [*(view.format(lost=quote(lively.lost, safe="")) for view in VIEWS), f"#/ledger/{lively.fragmented}"]


@contextlib.contextmanager
def _logs(lively: Lively, names: Sequence[str]) -> Iterator[None]:
    for name in names:
        lively.client.open_log(name, create=True)
    try:
        yield
    finally:
        for name in names:
            lively.client.open_log(name).delete()


def test_every_view_is_reached_by_a_click(page: Chrome, lively: Lively) -> None:
    for view, shown in (
        ("Bookies", lively.lost),
        ("Logs", LOG),
        ("Under-replicated", "worker-1"),
        ("Ledgers", "Last ensemble"),
    ):
        _click(page, view)
        _until(page, lambda view=view: _heading(page).startswith(view))
        assert _text(page, "nav a[aria-current=page]").startswith(view)
        assert shown in _main(page)
    page.find_element(By.LINK_TEXT, "0").click()
    _until(page, lambda: _heading(page).startswith("Ledger 0"))
    assert page.title == "0 · bk_spark"
    _click(page, LOG)
    _until(page, lambda: _heading(page) == LOG)
    page.back()
    _until(page, lambda: _heading(page).startswith("Ledger 0"))


def test_the_overview_tells_of_the_lost_bookie_in_words(page: Chrome, lively: Lively) -> None:
    _until(page, lambda: "✕ 1 lost" in _main(page))
    assert "3 of 4 writable" in _main(page)
    [row] = [row for row in _find(page, "tbody tr") if lively.lost in row.text]
    assert "✕ lost" in row.text
    assert re.search(r"last seen \d+ (s|min) ago", row.text)
    assert _text(page, "#marks") == "1"


def test_without_an_auditor_nothing_says_that_every_copy_is_there(page: Chrome, lively: Lively) -> None:
    """Not on any view, nor by a green mark; the bookies that are known to be lost are named."""
    _until(page, lambda: "? not known: no auditor runs" in _main(page))
    assert "at least 1" in _main(page)
    assert len(_find(page, "#marks-history rect.marks.none")) == 0
    for view in _views(lively):
        _show(page, view, "")
        assert "every copy is there." not in _main(page), view
    _show(page, "#/underreplicated", "Under-replicated ledgers")
    assert "At least 1 ledger lacks copies" in _main(page)
    assert "1 bookie is lost" in _main(page)
    assert "no auditor runs" in str(page.execute_script("return document.getElementById('marks').title"))
    _show(page, f"#/ledger/{lively.fragmented - 1}", f"Ledger {lively.fragmented - 1}")
    assert "not marked ? not known: no auditor runs" in " ".join(_main(page).split())
    _show(page, "#/", "Overview")


def test_a_log_that_is_open_is_not_shown_with_the_rows_of_its_closed_ledgers_alone(page: Chrome, lively: Lively) -> None:
    with _logs(lively, ["grows"]), lively.client.open_log("grows").open_writer(2, 2, 2) as writer:
        writer.append(b"x")
        _show(page, "#/log/grows", "grows")
        _until(page, lambda: "not known: open" in _main(page))
        writer.roll()
        writer.append(b"x")
        _until(page, lambda: "at least 1" in _main(page))
        writer.close()
        _until(page, lambda: "at least" not in _main(page) and "not known" not in _main(page))
        _show(page, "#/", "Overview")


def test_the_page_of_a_log_says_where_its_tier_is_what_it_has_and_what_waits(page: Chrome, lively: Lively) -> None:
    with tiered_log(lively.client, "tiered", waiting=2) as tier:
        _show(page, "#/log/tiered", "")
        _until(page, lambda: _heading(page) == "tiered" and "● in time" in _main(page))
        told = " ".join(_text(page, "#tier").split())
        for said in (tier.table, tier.location, "In the table 30 rows", "Gone from bookies 30 rows", "Waits 20 rows"):
            assert said in told
        assert SETTING not in _main(page)
        resize(page, NARROW, 900)
        assert page.execute_script("return document.documentElement.scrollWidth") <= NARROW
        resize(page, 1280, 900)
        _show(page, "#/logs", "Logs")
        _until(page, lambda: "● in time" in _main(page))
        page.get("about:blank")  # or the page would ask once more for a log that is deleted now


def test_a_tier_that_is_behind_or_cannot_be_read_is_marked(scripts: Chrome) -> None:
    def sign(tier: dict[str, Any] | None) -> str:
        return str(scripts.execute_script("return ((one) => one.textContent ?? one)(tierSign(arguments[0]))", tier))

    now_ms = int(scripts.execute_script("return Date.now()"))
    behind = {"problem": "", "behind": True, "since_ms": now_ms - 2 * 3_600_000 - 60_000}
    assert sign(behind) == "▲ 2 h behind"
    assert sign({**behind, "behind": False}) == "● in time"
    assert sign({"problem": "its settings are missing"}) == "? not known"
    assert sign(None) == "none"


def test_the_overview_tells_of_disks_that_count_once_of_zookeeper_and_of_the_time_under_replicated(
    page: Chrome, lively: Lively
) -> None:
    _until(page, lambda: "on 1 disk of 3 bookies" in _text(page, "#disks"))
    assert f"connected to 127.0.0.1:{lively.cluster.zookeeper.port} for" in _text(page, "#zookeeper")
    assert "session 0x" in _main(page)
    assert "at most 1 marked; looked at for" in str(_find(page, "#marks-history")[0].get_attribute("aria-label"))
    assert len(_find(page, "#marks-history rect.marks")) >= 1


def test_bookies_that_do_not_tell_their_disks_are_said_to_count_by_themselves(scripts: Chrome) -> None:
    space = {"total_bytes": 3072, "free_bytes": 0, "bookies": 3, "file_systems": 2, "untold": 1}
    text = scripts.execute_script("return disksCounted(arguments[0]).textContent", space)
    assert (
        text == "of 3.00 KiB, on 1 disk of 2 bookies ? may count twice 1 bookie does not tell which disk: each counts by itself"
    )


def test_the_page_of_a_lost_bookie_says_since_when_and_which_command_helps(page: Chrome, lively: Lively) -> None:
    _until(page, lambda: page.find_elements(By.LINK_TEXT, "what to do"))
    page.find_element(By.LINK_TEXT, "what to do").click()
    _until(page, lambda: _heading(page).startswith(lively.lost))
    assert _text(page, "nav a[aria-current=page]") == "Bookies"
    assert f"bk-spark bookie decommission {lively.lost}" in [one.text for one in _find(page, "#advice code")]
    assert re.search(r"Last sign of life\n\d{4}-\d\d-\d\d .* UTC \(.* ago\): it went after that", _main(page))
    _click(page, str(lively.fragmented))
    _until(page, lambda: _heading(page).startswith(f"Ledger {lively.fragmented}"))


def test_the_page_of_a_running_bookie_tells_its_ports_and_who_shares_its_disk(page: Chrome, lively: Lively) -> None:
    first, second, *_ = (bookie.bookie_id for bookie in lively.cluster.bookies if bookie.bookie_id != lively.lost)
    _until(page, lambda: page.find_elements(By.PARTIAL_LINK_TEXT, first))
    _click(page, first)
    _until(page, lambda: _heading(page).startswith(first) and second in _main(page))
    assert "Address for Apache's clients\n127.0.0.1:" in _main(page)
    assert "Boot\n1, epoch" in _main(page)
    assert not _find(page, "#advice")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("orders-2026.v1:a_b c", "orders-2026.v1:a_b c"),
        (" a ", '" a "'),
        ("a  b", '"a \\u{20}b"'),
        ("", '""'),
        ("a\tb\x00", '"a\\u{9}b\\u{0}"'),
        ("to\u202eleft\u200f", '"to\\u{202e}left\\u{200f}"'),
        ("a\u00a0b", '"a\\u{a0}b"'),
        ('say "x" \\u{9}', '"say \\"x\\" \\\\u{9}"'),
        ("\u043erders", '"\u043erders"'),
        ("caf\u00e9", '"caf\u00e9"'),
        ("cafe\u0301", '"cafe\\u{301}"'),
        ("\u0e19\u0e49\u0e33", '"\u0e19\u0e49\u0e33"'),
        ("x" * 48, "x" * 48),
    ],
)
def test_a_name_is_shown_so_that_nothing_in_it_is_unseen(scripts: Chrome, name: str, shown: str) -> None:
    assert scripts.execute_script("return [shown(arguments[0]), whole(arguments[0])]", name) == [shown, shown]


def test_a_long_name_is_cut_in_the_middle_and_told_from_another_with_the_same_ends(scripts: Chrome) -> None:
    texts = [scripts.execute_script("return shown(arguments[0])", "a" * 80 + one + "z" * 80) for one in "xy"]
    assert texts[0] != texts[1]
    assert all(re.fullmatch(r"a{23}…z{23} #[0-9a-f]{6}", text) for text in texts)
    assert scripts.execute_script("return whole(arguments[0])", "\u202e" * 200) == '"' + "\\u{202e}" * 200 + '"'


def test_logs_with_long_and_odd_names_are_told_apart_and_break_no_layout(page: Chrome, lively: Lively) -> None:
    names = ["n" * 100 + one + "n" * 99 for one in "xy"] + [" orders", "\u202eorders", "ord\u200fers", "\u043erders", "W" * 200]
    with _logs(lively, names):
        for width in (NARROW, 1280):
            resize(page, width, 900)
            for view in ("#/", "#/logs"):
                _show(page, view, "")
                assert page.execute_script("return document.documentElement.scrollWidth") <= width
            _until(page, lambda: len(_find(page, "tbody th bdi")) >= len(names) + 1)
            texts = [one.text for one in _find(page, "tbody th bdi")]
            assert len(set(texts)) == len(texts)
            assert max(len(text) for text in texts) <= 60
        assert names[0] in {one.get_attribute("title") for one in _find(page, "bdi.name")}
        _show(page, f"#/log/{quote(names[0], safe='')}", names[0])
        _show(page, f"#/log/{quote(names[3], safe='')}", '"\\u{202e}orders"')
        assert page.execute_script("return document.documentElement.scrollWidth") <= 1280
        page.get("about:blank")  # or the page would ask once more for a log that is deleted now


def test_the_fragments_of_a_ledger_are_drawn(page: Chrome, lively: Lively) -> None:
    _show(page, f"#/ledger/{lively.fragmented}", f"Ledger {lively.fragmented}")
    metadata = lively.client.ledger_metadata(lively.fragmented)
    expected = {(str(one.first_entry_id), bookie) for one in metadata.fragments for bookie in one.ensemble}
    boxes = _find(page, "#fragments rect.fragment")
    assert {(box.get_attribute("data-first"), box.get_attribute("data-bookie")) for box in boxes} == expected
    assert len(boxes) == len(expected) == len({box.get_attribute("id") for box in boxes})
    lost = _find(page, "#fragments .is-lost")
    assert [box.get_attribute("data-bookie") for box in lost] == [lively.lost]
    assert _find(page, "#fragments text.lost")[0].text.endswith(f"✕ {lively.lost}")
    first, last = (_find(page, f"#fragments [data-first='{one.first_entry_id}']")[0].rect for one in metadata.fragments)
    share = metadata.fragments[1].first_entry_id / 120
    assert first["width"] / (first["width"] + last["width"]) == pytest.approx(share, abs=0.02)
    assert first["x"] + first["width"] <= last["x"] + 1


def test_the_drawing_is_also_told_as_a_table(page: Chrome, lively: Lively) -> None:
    _show(page, f"#/ledger/{lively.fragmented}", "Ledger")
    assert "the table below says the same" in str(_find(page, "#fragments")[0].get_attribute("aria-label"))
    _find(page, "details summary")[0].click()
    rows = _find(page, "details tbody tr")
    assert [lively.lost in row.text for row in rows] == [True, False]
    assert "(lost)" in rows[0].text


def test_what_looks_like_markup_stays_text(page: Chrome, lively: Lively) -> None:
    """Custom metadata, names of logs and bookies' racks are written by anyone who may use the cluster."""
    name = f"<b onmouseover=alert(1)>{MARKUP.replace('/', '')}"
    lively.client.open_log(name, create=True)
    _show(page, f"#/ledger/{lively.fragmented}", "Ledger")
    assert MARKUP in _main(page)
    _show(page, f"#/log/{quote(name, safe='')}", name)
    _show(page, "#/logs", "Logs")
    _until(page, lambda: name in {one.get_attribute("title") for one in _find(page, "bdi.name")})
    assert not _find(page, "main img, main b, main script")
    assert "owned" not in page.title
    lively.client.open_log(name).delete()


def test_a_log_is_drawn_ledger_by_ledger(page: Chrome, lively: Lively) -> None:
    _show(page, f"#/log/{LOG}", LOG)
    listed = lively.client.open_log(LOG).ledgers()
    boxes = _find(page, "#ledgers rect.ledger")
    assert [box.get_attribute("data-ledger") for box in boxes] == [str(one.ledger_id) for one in listed]
    widths = [box.rect["width"] for box in boxes]
    sizes = [one.length for one in listed if isinstance(one, CommittedLedger)]
    assert [width / max(widths) for width in widths] == pytest.approx([size / max(sizes) for size in sizes], abs=0.03)
    assert [mark.get_attribute("data-stream") for mark in _find(page, "#ledgers .stream")] == ["dashboard-stream"]
    assert re.search(r"dashboard-stream\s+\d+", _main(page))
    page.execute_script("arguments[0].parentNode.dispatchEvent(new MouseEvent('click', {bubbles: true}))", boxes[0])
    _until(page, lambda: _heading(page).startswith(f"Ledger {listed[0].ledger_id}"))


def test_the_live_rate_moves_while_a_writer_appends(page: Chrome, lively: Lively) -> None:
    def rate() -> str:
        return _text(page, "#adds")

    _until(page, lambda: rate() == "0/s")
    with load(lively.client, "events", entries_a_turn=50):
        _until(page, lambda: rate() not in ("0/s", "–/s", ""))
        _until(page, lambda: len(_find(page, "svg.chart polyline")) >= 2)
        _show(page, "#/log/events", "events")
        _until(page, lambda: _find(page, "#ledgers .is-open"))
        assert "1 open" in _main(page)
    lively.client.open_log("events").delete()


def test_a_refresh_touches_only_what_changed(page: Chrome, lively: Lively) -> None:
    _show(page, f"#/ledger/{lively.fragmented}", "Ledger")
    _find(page, "details summary")[0].click()
    page.execute_script("""
        window.kept = document.querySelector('#fragments rect'); window.touched = 0;
        new MutationObserver((all) => { window.touched += all.filter((one) => !/ ago/.test(one.target.textContent)).length; })
            .observe(document.querySelector('#fragments'), {subtree: true, childList: true, attributes: true});
        const ask = window.fetch; window.asked = 0; window.pending = 0;
        window.fetch = (...all) => {
            window.asked += 1; window.pending += 1;
            return ask(...all).finally(() => { window.pending -= 1; });
        };""")
    for asked in (2, 4):
        page.execute_script("window.dispatchEvent(new Event('hashchange'))")  # instead of waiting for the next refresh
        _until(page, lambda asked=asked: page.execute_script("return window.asked >= arguments[0] && !window.pending", asked))
    assert page.execute_script("return window.touched") == 0
    assert page.execute_script("return window.kept.isConnected && document.querySelector('details').open")


def test_a_hidden_page_asks_nothing(page: Chrome) -> None:
    page.execute_script("""
        const ask = window.fetch; window.asked = 0; window.pending = 0;
        window.fetch = (...all) => {
            window.asked += 1; window.pending += 1;
            return ask(...all).finally(() => { window.pending -= 1; });
        };
        window.dispatchEvent(new Event('hashchange'));  // a refresh is under way
        Object.defineProperty(document, 'hidden', {value: true, configurable: true});
        document.dispatchEvent(new Event('visibilitychange'));""")
    _until(page, lambda: page.execute_script("return window.pending") == 0)
    before = page.execute_script("return window.asked")
    page.execute_async_script("setTimeout(arguments[0], 2500)")  # longer than a period: nothing can be waited for
    assert page.execute_script("return window.asked") == before
    page.execute_script("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    _until(page, lambda: page.execute_script("return window.asked") > before)


def test_a_ledger_is_found_by_its_id_and_ledgers_by_their_state(page: Chrome, lively: Lively) -> None:
    _show(page, "#/ledgers", "Ledgers")
    page.find_element(By.NAME, "id").send_keys(str(lively.fragmented))
    page.find_element(By.TAG_NAME, "button").click()
    _until(page, lambda: _heading(page).startswith(f"Ledger {lively.fragmented}"))
    _show(page, "#/ledgers?state=IN_RECOVERY", "Ledgers")
    _until(page, lambda: "no such ledger" in _main(page))
    _show(page, "#/ledgers?state=CLOSED", "Ledgers")
    assert "■ closed" in _main(page)


def test_what_is_not_there_is_said(page: Chrome) -> None:
    page.execute_script("location.hash = '#/ledger/424242'")
    _until(page, lambda: "there is no ledger 424242" in _main(page))
    _show(page, "#/", "Overview")
    page.get_log("browser")  # browsers note a 404


@pytest.mark.parametrize("width", [NARROW, 1280])
def test_no_view_is_wider_than_the_window(page: Chrome, lively: Lively, width: int) -> None:
    resize(page, width, 900)
    for view in _views(lively):
        _show(page, view, "")
        assert page.execute_script("return document.documentElement.scrollWidth") <= width, view
    resize(page, 1280, 900)


def test_on_a_narrow_window_no_table_is_cut_off_and_each_cell_says_its_column(page: Chrome, lively: Lively) -> None:
    resize(page, NARROW, 900)
    for view in _views(lively):
        _show(page, view, "")
        cut = "return [...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth).length"
        assert page.execute_script(cut) == 0, view
        named = (
            "return [...document.querySelectorAll('td')].every((one) => getComputedStyle(one, '::before').content.length > 2)"
        )
        assert page.execute_script(named), view
    resize(page, 1280, 900)


def test_the_page_can_be_used_without_seeing_it(page: Chrome, lively: Lively) -> None:
    """Every table has a caption and headings of its columns and rows, every drawing a text, every field a label."""
    for view in _views(lively):
        _show(page, view, "")
        problems = page.execute_script("""
            const wrong = (selector, is_wrong) =>
                [...document.querySelectorAll(selector)].filter(is_wrong).map((one) => one.outerHTML);
            return [
                ...wrong('table', (one) => !one.caption || one.querySelectorAll('thead th[scope=col]').length < 2
                    || one.querySelectorAll('tbody th[scope=row]').length !== one.tBodies[0].rows.length),
                ...wrong('main svg', (one) => !one.ariaLabel && one.ariaHidden !== 'true'),
                ...wrong('input, select', (one) => !one.labels.length),
                ...wrong('[role=img]', (one) => !one.ariaLabel),
                ...wrong('h1', (one, place) => place > 0)];""")
        assert problems == [], view


def test_figures_of_a_server_that_does_not_answer_are_marked_as_old(page: Chrome) -> None:
    page.execute_script("window.fetch = () => Promise.reject(new Error('gone'))")
    _until(page, lambda: "does not answer" in _text(page, "#notice"))
    assert re.search(r"since \d\d:\d\d:\d\d", _text(page, "#notice"))
    assert _text(page, "#age") == "not updated"
    assert "writable" in _main(page)
