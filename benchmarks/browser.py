"""What a page costs and what is left of it: `python benchmarks/browser.py [--pages] [--direct] [NAME …]`.

Real article pages ($GA_TESTDATA/pages, else ../shared/pages beside the repo) without their scripts, and pages of our own
that are no articles, are served on loopback and scanned by a real Chromium through the bridge (--direct: over its
debugging pipe, as the tests of page scripts do). --pages shows each page; NAME … takes only some of them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import ROOT, Row
from run import HEAD, line

sys.path[:0] = [str(ROOT / "tests" / "browser"), str(ROOT / "tests")]

import simphtml  # noqa: E402

RUNS = 5  # scans of a page, of which the median counts
CALLS, CLICKS = 30, 10
UNLIMITED = 10**9
SCRIPTS = re.compile(rb"<script\b.*?(?:</script\s*>|\Z)", re.S | re.I)

OWN_CONTROLS = """const found = new Set(), all = [];
for (let n = 1; n <= 6000; n++) try { found.add(el(n)); } catch {}
for (const e of document.querySelectorAll('a[href],button,input:not([type=hidden]),select,textarea')) {
  const box = e.getBoundingClientRect();
  if (box.width < 1 || box.height < 1 || !e.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
  all.push(e);
}
return [all.length, all.filter(e => found.has(e)).length]"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help="pages (default: all)")
    parser.add_argument("--pages", action="store_true", help="a line for each page")
    parser.add_argument("--direct", action="store_true", help="without the bridge")
    args = parser.parse_args()
    print(HEAD)
    rows = figures(args.name, args.pages, args.direct)
    for row in rows:
        print(line(row), flush=True)
    return any(row.verdict == "MISSED" for row in rows)


def browser() -> list[Row]:
    """All figures, for run.py."""
    return figures([], False, False)


def figures(names: list[str], each: bool, direct: bool) -> list[Row]:
    metrics, articles = _articles(names)
    own = {name: page for name, page in OWN.items() if not names or name in names}
    pages = {f"/{name}/": body for name, (body, _) in articles.items()}
    pages |= {f"/{name}/": page().encode() for name, page in own.items()}
    from chrome import serve

    with serve(lambda path: (200, {}, pages[path]) if path in pages else None) as port, _driver(direct) as driver:
        base = f"http://127.0.0.1:{port}"
        scores = [_score(driver, base, name, expected, metrics) for name, (_, expected) in articles.items()]
        shown = [_own(driver, base, name, metrics) for name in own]
        calls, clicks = _speed(driver, base) if not names else ([], [])
    if each:
        for one in [*scores, *shown]:
            print("  ", ", ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in one.items()))
    return [*_speed_rows(calls, clicks), *_score_rows(scores), *_own_rows(shown)]


def _articles(names: list[str]) -> tuple[Any, dict[str, tuple[bytes, str]]]:
    folder = Path(os.environ.get("GA_TESTDATA") or ROOT.parent / "shared") / "pages"
    spec = importlib.util.spec_from_file_location("metrics", folder / "metrics.py")
    if spec is None or spec.loader is None or not folder.is_dir():
        raise SystemExit(f"no pages in {folder}: set GA_TESTDATA")
    metrics = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(metrics)
    found = {
        source.parent.name: (
            SCRIPTS.sub(b"", source.read_bytes()),
            (source.parent / "expected.html").read_text("utf-8"),
        )
        for source in sorted(folder.glob("*/source.html"))
        if not names or source.parent.name in names
    }
    return metrics, found


@contextlib.contextmanager
def _driver(direct: bool) -> Iterator[Any]:
    if direct:
        from chrome import Chrome

        with Chrome() as chrome:
            yield chrome.open("about:blank")
        return
    from bridged import Bridged  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory(prefix="ga-bench-") as folder:
        bridged = Bridged(Path(folder))
        try:
            yield bridged.driver
        finally:
            bridged.close()


def _timed(run: Callable[[], Any], times: int) -> tuple[Any, float]:
    """(its last value, the median seconds)."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        value = run()
        seconds.append(time.perf_counter() - began)
    return value, statistics.median(seconds)


def _score(driver: Any, base: str, name: str, expected: str, metrics: Any) -> dict[str, Any]:
    driver.jump(f"{base}/{name}/")
    controls = driver.execute_js(metrics.INTERACTIVE_JS)["value"]
    html, seconds = _timed(lambda: simphtml.get_html(driver, maxchars=UNLIMITED), RUNS)
    count, numbered = driver.execute_js(simphtml.el_source() + OWN_CONTROLS)["value"]
    text = simphtml.get_html(driver, text_only=True, maxchars=UNLIMITED)
    scored, read = metrics.score(html, "html", expected, controls), metrics.score(text, "text", expected, controls)
    return {
        "page": name, "seconds": seconds, "chars": scored["chars"], "article": scored["recall5"],
        "controls": scored["controls_recall"], "numbered": numbered / count if count else None,
        "text": read["chars"], "text_article": read["recall5"],
    }  # fmt: skip


def _own(driver: Any, base: str, name: str, metrics: Any) -> dict[str, Any]:
    """How much of all visible text a scan has, on pages of which everything counts."""
    driver.jump(f"{base}/{name}/")
    controls = driver.execute_js(metrics.INTERACTIVE_JS)["value"]
    visible = driver.execute_js("return document.body.innerText")["value"]
    html, seconds = _timed(lambda: simphtml.get_html(driver, maxchars=UNLIMITED), RUNS)
    scored = metrics.score(html, "html", re.sub(r"[<>&]", " ", visible), controls)
    return {
        "page": name,
        "seconds": seconds,
        "chars": len(html),
        "words": scored["recall1"],
        "controls": scored["controls_recall"],
    }


def _speed(driver: Any, base: str) -> tuple[list[float], list[float]]:
    driver.jump(f"{base}/shop/")
    calls = [_timed(lambda: driver.execute_js("return 1"), 1)[1] for _ in range(CALLS)]
    script = "document.querySelector('h1').click()"
    clicks = [_timed(lambda: simphtml.execute_js_rich(script, driver), 1)[1] for _ in range(CLICKS)]
    return calls, clicks


def _speed_rows(calls: list[float], clicks: list[float]) -> list[Row]:
    if not calls:
        return []
    return [
        Row("execute_js('return 1')", statistics.median(calls) * 1000, "ms", 15, f"median of {len(calls)}"),
        Row("click with monitoring, page quiet at once", statistics.median(clicks) * 1000, "ms", 350, f"median of {len(clicks)}"),
    ]  # fmt: skip


def _score_rows(scores: list[dict[str, Any]]) -> list[Row]:
    def values(key: str) -> list[float]:
        return sorted(one[key] for one in scores if one[key] is not None)

    if not scores:
        return []
    seconds, n = values("seconds"), f"{len(scores)} article pages, not cut"
    p90 = seconds[round(0.9 * (len(seconds) - 1))]
    return [
        Row("scan, HTML", statistics.median(seconds), "s", 0.04, f"median of {n}; of {RUNS} scans each the median"),
        Row("scan, HTML, 90th percentile", p90, "s", 0.1, f"slowest {seconds[-1]:.2f}"),
        Row("HTML, characters", statistics.median(values("chars")), "chars", 9000, f"median; mean {statistics.fmean(values('chars')):.0f}"),
        Row("HTML, recall of the article", statistics.fmean(values("article")), "", 0.975, "mean; 5-grams", least=True),
        Row("HTML, recall of controls", statistics.fmean(values("controls")), "", 0.98, "mean; labels of visible controls", least=True),
        Row("controls that el(n) finds", statistics.fmean(values("numbered")), "", 0.995, "mean", least=True),
        Row("text, characters", statistics.median(values("text")), "chars", 5200, "median"),
        Row("text, recall of the article", statistics.fmean(values("text_article")), "", 0.98, "mean; 5-grams", least=True),
    ]  # fmt: skip


def _own_rows(shown: list[dict[str, Any]]) -> list[Row]:
    if not shown:
        return []
    names = ", ".join(f"{one['page']} {one['chars']}" for one in shown)
    return [
        Row(
            "own pages, words shown",
            min(one["words"] for one in shown),
            "",
            0.98,
            f"worst of {names} chars",
            least=True,
        ),
        Row("own pages, controls shown", min(one["controls"] for one in shown), "", 0.98, "worst", least=True),
    ]


# pages that are no articles


def _page(title: str, body: str) -> str:
    menu = "".join(
        f"<li><a href='/{w.lower()}'>{w}</a>" for w in ("Home", "Offers", "Orders", "Returns", "Account", "Help")
    )
    foot = "<footer><a href='/imprint'>Imprint</a> <a href='/privacy'>Privacy</a> © 2026</footer>"
    return f"<!doctype html><title>{title}</title><nav><ul>{menu}</ul></nav><h1>{title}</h1>{body}{foot}"


def _shop() -> str:
    brands = "".join(
        f"<label><input type=checkbox name=brand value=b{i}> Brand {i} ({i * 7 % 40})</label><br>" for i in range(12)
    )
    item = (
        "<div class='widget product'><a href='/product/{0}?ref=list'><img src='data:,' alt='Lamp {0}'></a><h3><a href='/product/{0}?ref=list'>"
        "Lamp {0} with a shade of linen</a></h3><p class=teaser>Warm light for reading, {1} lumen, dimmable, three years of warranty.</p>"
        "<span>{1},99 €</span> <span>{2} left</span> <button>Add to cart</button> <button aria-label='Remember lamp {0}'>♡</button></div>"
    )
    items = "".join(item.format(i, 20 + i, i * 3 % 17) for i in range(60))
    return _page(
        "Lamps",
        f"<aside class=sidebar><h2>Filter</h2>{brands}<select name=sort><option>Price<option>Name</select></aside><main>{items}</main>",
    )


def _table() -> str:
    rows = "".join(
        f"<tr><td>{1000 + i}<td>Customer {i}<td>{i * 37 % 900},50 €<td>{'open' if i % 3 else 'paid'}<td><button>Edit</button>"
        for i in range(120)
    )
    return _page(
        "Invoices", f"<table><thead><tr><th>No<th>Customer<th>Sum<th>State<th></thead><tbody>{rows}</tbody></table>"
    )


def _form() -> str:
    fields = "".join(
        f"<p><label>Field {i} <input name=field{i} value='value {i}'></label> <small class=hint>Hint {i}: letters only</small></p>"
        for i in range(40)
    )
    terms = "<div class=legal><input type=checkbox name=terms> I accept the <a href='/terms'>terms</a></div>"
    return _page("Application", f"<form class=modal>{fields}{terms}<button>Send</button></form>")


def _dashboard() -> str:
    cards = "".join(
        f"<div class='widget'><h2>Server {i}</h2><p>{'up' if i % 4 else 'down'} since {i + 2} days, load {i}.{i % 10}</p>"
        f"<p class=comments>The last backup of server {i} took {i * 3} minutes and was checked by a second machine afterwards.</p>"
        f"<button>Restart</button> <a href='/server/{i}'>Details</a></div>"
        for i in range(50)
    )
    return _page("Servers", cards)


def _file(name: str) -> Callable[[], str]:
    return (ROOT / "tests" / "browser" / "pages" / f"{name}.html").read_text


OWN: dict[str, Callable[[], str]] = {
    "shop": _shop, "table": _table, "form": _form, "dashboard": _dashboard,
    **{name: _file(name) for name in ("inbox", "settings", "results")},
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
