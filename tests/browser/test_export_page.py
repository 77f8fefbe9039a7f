"""An exported conversation in a real Chromium: it can be read, and nothing in it runs or asks the net."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from chrome import Chrome, Tab, serve

from genericagent import prompts
from genericagent.cli.export_page import as_html
from genericagent.cli.transcript import transcript
from genericagent.safety.term import clean

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
LONG = "no_blank_in_it_" * 40


def evil(port: int) -> str:
    away = f"http://127.0.0.1:{port}/leak"
    return (
        f"</script></style></title></pre></details><script>window.ran = 1; fetch('{away}1')</script>"
        f"<img src='{away}2' onerror='window.ran = 2'><link rel=stylesheet href='{away}3'><iframe src='{away}4'></iframe>"
        f'![x]({away}5) " onload="window.ran = 3" style="background: url({away}6)" <svg onload=\'window.ran = 4\'>'
        f"<base href='{away}7/'><meta http-equiv=refresh content='0;url={away}8'> \u202eenoD \x00 \ud800"
    )


def conversation(port: int) -> list[dict[str, Any]]:
    evils = evil(port)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    text = {
        "type": "text",
        "text": f"<thinking>{evils} quietly</thinking><summary>fix it</summary>The **answer** is `42`. {evils}",
    }
    patch = {"path": evils, "old_content": "for i in 9:", "new_content": f"for i in 10:\n{evils}"}
    use = {"type": "tool_use", "id": "t", "name": "file_patch", "input": patch}
    run = {"type": "tool_use", "id": "u", "name": evils, "input": {"script": f"make\n{LONG}", evils: evils}}
    return [
        {"type": "session", "v": 1, "id": "s", "created": 1.7e9, "cwd": evils, "llm": evils},
        {"type": "line", "text": f"[USER]: {evils}"},
        {"type": "message", "message": {"role": "user", "content": [{"type": "text", "text": f"Please. {evils}"}, image], "request": True}},
        {"type": "usage", "input": 1000, "output": 90, "cache_read": 400, "cache_write": 0, "cost": 0.25},
        {"type": "message", "message": {"role": "assistant", "content": [text, use, run]}},
        {"type": "result", "tool_use_id": "t", "content": f"patched {evils}"},
        {"type": "result", "tool_use_id": "u", "content": "\n".join(["long output", *"abcdefghijklmnop", evils])},
    ]  # fmt: skip


def look(chrome: Chrome, tab: Tab, width: int, scheme: str) -> None:
    features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    chrome.call("Emulation.setEmulatedMedia", features, tab.session)
    chrome.call("Emulation.setDeviceMetricsOverride", size, tab.session)


def value(tab: Tab, code: str) -> Any:
    answer = tab.execute_js(code)
    assert "error" not in answer, answer
    return answer["value"]


COLOURS = """const colour = (what, which) => getComputedStyle(document.querySelector(what))[which];
return [colour('body', 'backgroundColor'), colour('i.add', 'backgroundColor'), colour('i.del', 'backgroundColor'),
        colour('rect.cached', 'fill'), colour('rect.input', 'fill'), colour('rect.output', 'fill')];"""


@pytest.fixture
def asked() -> list[str]:
    return []


def test_an_exported_page_cannot_be_read_runs_what_it_holds_or_asks_the_net(chrome: Chrome, asked: list[str]) -> None:
    page = b""

    def pages(path: str) -> tuple[int, Mapping[str, str], bytes]:
        asked.append(path)
        return 200, {}, page

    with serve(pages) as port:
        page = as_html(transcript(conversation(port), clean), prompts.catalog("export")).encode()
        tab = chrome.open(f"http://127.0.0.1:{port}/")
        try:
            shown = value(tab, "return document.body.innerText")
            for text in ("Please. </script>", "fix it", "The answer is 42.", "file_patch", "-for i in 9:", "+for i in 10:",
                         "patched </script>", "Tokens per turn", "Cost per turn, at most $0.2500", "[U+202E]enoD", LONG):  # fmt: skip
                assert text in shown, text
            assert "quietly" not in shown and "long output" not in shown  # folded, as is
            value(tab, "document.querySelectorAll('summary').forEach(s => s.parentNode.open || s.click())")
            shown = value(tab, "return document.body.innerText")
            assert "quietly" in shown and "long output" in shown

            bars = "return [...document.querySelectorAll('rect')].map(r => [r.getBoundingClientRect().width, r.getBoundingClientRect().height])"
            assert len(sizes := value(tab, bars)) == 4 and all(w > 5 and h > 5 for w, h in sizes)
            assert value(tab, "const i = document.images; return [i.length, i[0].complete && i[0].naturalWidth]") == [
                1,
                1,
            ]

            look(chrome, tab, 1000, "light")
            light = value(tab, COLOURS)
            look(chrome, tab, 360, "dark")
            dark = value(tab, COLOURS)
            assert len(set(light)) == len(set(dark)) == 6 and light[0] == "rgb(255, 255, 255)" != dark[0]
            assert value(tab, "return document.documentElement.scrollWidth") <= 360

            assert value(
                tab,
                "return [typeof window.ran, document.scripts.length, document.querySelectorAll('iframe,base').length]",
            ) == ["undefined", 0, 0]
            value(tab, f"""const put = (tag, what) => document.body.appendChild(Object.assign(document.createElement(tag), what));
                put('script', {{textContent: 'window.ran = 5'}}); put('script', {{src: '/leak/a'}}); put('img', {{src: '/leak/b'}});
                put('iframe', {{src: '/leak/c'}}); put('link', {{rel: 'stylesheet', href: '/leak/d'}});
                put('div', {{innerHTML: '<b onclick="window.ran = 6" style="background: url(http://127.0.0.1:{port}/leak/e)">x</b>'}});
                document.querySelector('b[onclick]').click(); await new Promise(done => setTimeout(done, 300));""")  # fmt: skip
            assert value(tab, "return typeof window.ran") == "undefined"
        finally:
            tab.close()
    assert asked == ["/"]
