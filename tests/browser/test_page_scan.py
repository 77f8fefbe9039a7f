"""What a scan shows of a page, in a real Chromium."""

from __future__ import annotations

import re

import pytest
from chrome import Show

from genericagent.errors import ToolError
from simphtml import execute_js_rich, fold, get_html

EVERY_VISIBLE_CONTROL = """
const seen = new Set(), all = [];
for (let n = 1; n < 3000; n++) try { seen.add(el(n)); } catch {}
const walk = root => { for (const e of root.querySelectorAll('*')) {
  if (e.shadowRoot) walk(e.shadowRoot);
  if (e.matches('a[href],button,input:not([type=hidden]),select,textarea') && e.checkVisibility({visibilityProperty: true})) all.push(e);
} };
walk(document);
return [all.length, all.filter(e => !seen.has(e)).map(e => e.outerHTML)];
"""


def number(html: str, label: str) -> int:
    """The number of the control with this label, or with this in its tag."""
    found = re.search(rf"<\w+ (\d+)[^>]*>{re.escape(label)}|<\w+ (\d+)[^>]*{re.escape(label)}", html)
    assert found, f"{label!r} has no number in\n{html}"
    return int(found[1] or found[2])


def test_a_page_is_shown_as_lines_with_numbered_controls(show: Show) -> None:
    assert get_html(show("shop.html")).splitlines() == [
        "<a 1 />Mug shop <a 2 /mugs>Mugs <a 3 /cups>Cups <a 4 /plates>Plates",
        "<h1>All mugs & cups < 20 €",
        "<h2><a 6+5 /p/1001>Blue mug",
        "12,90 € <button 7>Add to cart",
        "<h2><a 9+8 /p/1002>Red mug",
        "14,50 € <button 10 disabled>Sold out",
        "Cart: 0 items",
        "<div 11>Remember",
        "© Mug shop 2026. All rights reserved.",
    ]


def test_text_has_no_tags_and_no_addresses(show: Show) -> None:
    text = get_html(show("shop.html"), text_only=True)
    assert "Blue mug" in text and "12,90 €" in text and "All mugs & cups < 20 €" in text
    assert "/p/1001" not in text and "<a" not in text


@pytest.mark.parametrize("text", ["Not for you", "Nor this", "Transparent", "Folded away"])
def test_what_is_hidden_is_not_shown(show: Show, text: str) -> None:
    assert text not in get_html(show("shop.html"))


def test_a_form_is_shown_with_its_state(show: Show) -> None:
    html = get_html(show("form.html"))
    for tag in (
        r"Name <input \d+ name=name value=Ann required>",
        r"<input \d+ type=email name=mail placeholder=you@example.org invalid>",
        r"<input \d+ type=checkbox name=news checked> Newsletter",
        r"<input \d+ type=radio name=plan value=a> basic <input \d+ type=radio name=plan value=b checked> full",
        r"<select \d+ name=country><option>Austria<option selected>Finland<option disabled>Nowhere</select>",
        r'<textarea \d+ name=note value="two lines">',
        r"<button \d+>Create account <button \d+ disabled>Later",
        r"<label \d+ type=checkbox checked>Dark mode",
        r"<div \d+ contenteditable label=Bio>Some text",
        r"<div \d+ role=tab selected>General",
        r"<summary \d+ collapsed>More",
    ):
        assert re.search(tag, html), f"{tag} is not in\n{html}"
    assert "Inside the details" not in html


def test_state_is_what_it_is_now_and_not_what_the_page_came_with(show: Show) -> None:
    tab = show("form.html")
    tab.execute_js(
        "document.querySelector('[name=name]').value = 'Bob'; document.querySelector('[name=news]').checked = false"
    )
    html = get_html(tab)
    assert "value=Bob" in html and "Ann" not in html
    assert re.search(r"name=news> Newsletter", html)


def test_a_password_is_not_told_and_hidden_fields_are_not_there(show: Show) -> None:
    html = get_html(show("form.html"))
    assert "hunter22" not in html and "t0p53cr3t" not in html
    assert re.search(r"type=password name=secret value=•+", html)


def test_markup_in_a_text_is_shown_as_text(show: Show) -> None:
    html = get_html(
        show(
            "<p>if a &lt;b&gt; &amp;amp; c &lt; 3 &amp;&amp; AT&amp;T: <code>&lt;script&gt;x&lt;/script&gt;</code></p>"
        )
    )
    assert html == "if a &lt;b> &amp;amp; c < 3 && AT&T: &lt;script>x&lt;/script>"


def test_white_space_of_pre_is_kept_and_other_is_not(show: Show) -> None:
    html = get_html(show("<p>a\n  b&nbsp; &nbsp;c</p><pre>def f():\n    return 1\n</pre>"))
    assert html == "a b c\n<pre>def f():\n    return 1</pre>"


def test_a_table_has_one_line_for_each_row(show: Show) -> None:
    html = get_html(show("<table><tr><th>City<th>People<tr><td>Turku<td>200 000<tr><td>Oulu<td><tr><td><td>7</table>"))
    assert html.splitlines() == ["City | People", "Turku | 200 000", "Oulu", " | 7"]


def test_a_table_that_makes_the_layout_is_no_table(show: Show) -> None:
    html = get_html(show("<table><tr><td><p>one</p><p>two</p></td><td><p>three</p></td></table>"))
    assert html.splitlines() == ["one", "two", "three"]


LINKS = (
    "<p>Text with <a href='/a/very/long/path/to/a/page?with=parameters&id={0}'>a link</a> in it and words around it</p>"
)


def test_links_that_differ_in_their_last_character_stay_apart_when_shortened(show: Show) -> None:
    html = get_html(show("".join(LINKS.replace("{0}", str(i)) for i in range(100))))
    targets = re.findall(r"<a \d+ ([^>]+)>", html)
    assert len(targets) == 100 == len(set(targets))
    assert max(map(len, targets)) < 40


def test_tracking_is_left_out_of_targets(show: Show) -> None:
    html = get_html(show("<a href='/x?utm_source=a&id=5&fbclid=zz'>x</a>"))
    assert html == "<a 1 /x?id=5>x"


def test_the_same_target_is_named_by_its_first_link(show: Show) -> None:
    html = get_html(show("<p>See <a href='/long/way'>this</a> and <a href='/long/way'>that</a>.</p>"))
    assert html == "See <a 1 /long/way>this</a> and <a 2 =1>that</a>."


def test_a_menu_that_is_there_twice_costs_one_reference(show: Show) -> None:
    menu = "".join(f"<li><a href='/topic/{w}'>{w}</a>" for w in ("news", "sport", "money", "travel"))
    html = get_html(show(f"<ul>{menu}</ul><p>Words.</p><ul>{menu}</ul>"))
    assert html.splitlines()[-1] == "- <a 5-8 =1-4>"


def test_nothing_far_down_the_page_is_lost(show: Show) -> None:
    html = get_html(show("<p>top</p><div style='height:60000px'></div><p>deep <button>Down here</button></p>"))
    assert html == "top\ndeep <button 1>Down here"


def test_every_visible_control_has_a_number_that_el_finds(show: Show) -> None:
    from simphtml import el_source

    for page in ("shop.html", "form.html"):
        tab = show(page)
        get_html(tab)
        count, missing = tab.execute_js(el_source() + EVERY_VISIBLE_CONTROL)["value"]
        assert count > 5 and not missing


def test_a_control_keeps_its_number_when_the_page_grows(show: Show) -> None:
    tab = show("<div id=d></div><button>Old</button>")
    assert get_html(tab) == "<button 1>Old"
    tab.execute_js("d.innerHTML = '<button>New</button>'")
    assert get_html(tab) == "<button 2>New <button 1>Old"


SHADOW = """<p>Outside</p><open-form></open-form><closed-form></closed-form><slot-box>Given by the page</slot-box><script>
const define = (name, mode, html) => customElements.define(name, class extends HTMLElement {
  constructor() { super(); this.attachShadow({mode}).innerHTML = html; } });
define('open-form', 'open', '<input name=seat> <button>Book</button>');
define('closed-form', 'closed', '<div><input name=card><button>Pay</button></div>');
define('slot-box', 'closed', '<h3>Box</h3><slot>nothing given</slot>');
</script>"""


def test_shadow_roots_are_read_also_closed_ones_and_slots(show: Show) -> None:
    html = get_html(show(SHADOW, closed=True))
    for part in (
        r"<input \d+ name=seat> <button \d+>Book",
        r"<input \d+ name=card> ?<button \d+>Pay",
        "<h3>Box\nGiven by the page",
    ):
        assert re.search(part, html), html
    assert "nothing given" not in html


FRAMES = {
    "/in": "<p>Inner <a href='/x'>link</a></p><iframe src='{other}/deep'></iframe>",
    "/deep": "<p>Deepest <button>Push</button></p>",
}


def test_frames_are_read_in_their_places_whatever_their_origin(show: Show) -> None:
    page = "<p>Before</p><iframe src='/in' width=400 height=300></iframe><p>Between</p><iframe src='{other}/deep'></iframe><p>After</p>"
    tab = show(page, FRAMES)
    text = get_html(tab)
    while text.count("Deepest") < 2:  # a frame in a process of its own is attached to a little later
        text = get_html(tab)
    order = ["Before", "Inner", "Deepest", "</frame>", "Between", "Deepest", "</frame>", "After"]
    at = [text.index("Before")]
    for word in order[1:]:
        at.append(text.index(word, at[-1] + 1))
    pushes = re.findall(r"<button (\d+)>Push", text)
    assert len(set(pushes)) == 2


def test_frames_in_shadow_roots_are_read_in_their_places(show: Show) -> None:
    """The browser gives them no order; two of them differ in nothing but their size."""
    widget = "<section><template shadowrootmode=open><p>{0}</p><iframe src='{{other}}/{1}' width={2} height=100></iframe></template></section>"
    page = "".join(
        widget.format(*one)
        for one in (("One", "a", 300), ("Two", "same", 300), ("Three", "b", 300), ("Four", "same", 500))
    )
    same = "<p id=w></p><button>Push</button><script>onload = onresize = () => w.textContent = `${innerWidth} wide`</script>"
    inner = {
        "/a": "<p>is a</p><iframe src='/deep'></iframe>",
        "/b": "<p>is b</p>",
        "/same": same,
        "/deep": "<p>is deep</p>",
    }
    tab = show(page, inner)
    while any(part not in (html := get_html(tab)) for part in ("is a", "is deep", "is b", "300 wide", "500 wide")):
        pass  # a frame in a process of its own is attached to a little later
    order = ["One", "is a", "is deep", "Two", "300 wide", "Three", "is b", "Four", "500 wide"]
    assert [html.index(part) for part in order] == sorted(html.index(part) for part in order)
    first, second = map(int, re.findall(r"<button (\d+)>Push", html))
    for number, wide in ((first, 300), (second, 500)):
        assert execute_js_rich(f"el({number}).id = 'x'; return innerWidth", tab, no_monitor=True)["value"] == wide


def test_a_frame_that_cannot_be_read_is_said_to_be_there() -> None:
    frame = {
        "path": "",
        "id": "a",
        "base": 0,
        "kind": "text/html",
        "lines": ["<frame 1 x.test>", "After"],
        "lists": [],
        "home": "",
        "unsent": 0,
    }

    class Closed:
        def page_script(self, *args: object, **how: object) -> dict[str, object]:
            place = {"path": "0", "at": 0, "href": "https://x.test/", "size": [1, 1]}
            return {"url": "", "title": "", "frames": [{"frame": 0, "value": {**frame, "frames": [place]}}]}

    assert get_html(Closed()) == "<frame 1 x.test> [this frame could not be read]\nAfter"  # type: ignore[arg-type]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_notices_are_in_the_users_language(show: Show, language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GA_LANG", language)
    options = "".join(f"<option>{i}" for i in range(40))
    tab = show(
        f"<ul>{'<li>an item of a list' * 200}</ul><dialog><select>{options}</select></dialog><script>document.querySelector('dialog').showModal()</script>"
    )
    html = get_html(tab, maxchars=1500)
    wanted = {
        "en": [
            "[dialog on top of the page]",
            "32 more in el(1).options",
            "[the page below, covered by the dialog]",
            "more of 200 items",
        ],
        "zh": ["[页面上方的对话框]", "另有 32 项，见 el(1).options", "[下面是被对话框遮住的页面]", "项（共 200 项）"],
    }
    assert [part for part in wanted[language] if part not in html] == []


def test_a_modal_dialog_comes_first_and_the_rest_is_said_to_be_covered(show: Show) -> None:
    tab = show(
        "<h1>Page</h1><p>Words</p><dialog><p>Sure?</p><button>Yes</button></dialog><script>document.querySelector('dialog').showModal()</script>"
    )
    assert get_html(tab).splitlines() == [
        "[dialog on top of the page]", "Sure?", "<button 1>Yes", "[the page below, covered by the dialog]", "<h1>Page", "Words",
    ]  # fmt: skip


BACKDROP = "<h1>Page</h1><p>Words</p>{}<p>More</p>"


@pytest.mark.parametrize(
    "layer",
    [
        "<div style='position:fixed;inset:0;background:#0008'><div style='margin:200px auto;width:300px;background:#fff'>Sure?</div></div>",
        "<div style='position:fixed;inset:0;background:#0008'></div><div style='position:fixed;top:40%;left:40%;background:#fff'>Sure?</div>",
        "<div role=dialog aria-modal=true style='position:fixed;inset:30%;background:#fff'>Sure?</div>",
    ],
)
def test_a_layer_over_the_page_counts_as_a_dialog_however_it_is_made(show: Show, layer: str) -> None:
    html = get_html(show(BACKDROP.format(layer)))
    assert html.splitlines()[:3] == ["[dialog on top of the page]", "Sure?", "[the page below, covered by the dialog]"]
    assert html.count("Sure?") == 1


@pytest.mark.parametrize(
    "page",
    [
        "<div style='position:fixed;inset:0;overflow:auto'><h1>App</h1><button>Go</button></div>",
        "<h1>App</h1><div style='position:fixed;bottom:0;left:0;right:0'>We use cookies <button>Fine</button></div>",
        "<h1>App</h1><div style='position:fixed;inset:0;z-index:-1;background:#eee'></div><p>Words</p><button>Go</button>",
    ],
)
def test_an_app_shell_a_bar_and_a_background_are_no_dialogs(show: Show, page: str) -> None:
    assert "dialog" not in get_html(show(page))


def test_a_control_under_something_else_is_said_to_be_covered(show: Show) -> None:
    page = "<button style='position:absolute;top:50px;left:50px'>Under</button><div style='position:absolute;top:40px;left:40px;width:200px;height:80px;background:#fff'>Over</div>"
    assert "<button 1 covered>Under" in get_html(show(page))


LONG_LIST = (
    "<h1>Results</h1><ul>"
    + "".join(f"<li>Item {i}: <a href='/item/{i}'>thing {i}</a> for {i} €" for i in range(200))
    + "</ul><p>The end</p>"
)
LONG_TABLE = (
    "<table><thead><tr><th>No<th>Name</thead><tbody>"
    + "".join(f"<tr><td>{i}<td>row {i}" for i in range(500))
    + "</table><p>The end</p>"
)


def test_within_the_limit_no_list_is_shortened(show: Show) -> None:
    html = get_html(show(LONG_LIST))
    assert html.count("\n- Item") == 200


@pytest.mark.parametrize(
    ("page", "first", "what", "of"), [(LONG_LIST, "Item 0", "items", 200), (LONG_TABLE, "No | Name", "rows", 500)]
)
def test_over_the_limit_lists_keep_their_first_items_and_say_how_many_there_are(
    show: Show, page: str, first: str, what: str, of: int
) -> None:
    tab = show(page)
    html = get_html(tab, maxchars=2000)
    assert len(html) <= 2000 and first in html and "The end" in html
    note = re.search(r"\[… (\d+) more of (\d+) (\w+), \d+ characters: start=(\d+)\]", html)
    assert note and note[3] == what and int(note[2]) == of
    shown = len(re.findall(r"^- Item|^\d+ \| row", html, re.M))
    assert shown + int(note[1]) == of
    rest = get_html(tab, maxchars=2000, start=int(note[4]))
    following = f"Item {shown}:" if what == "items" else f"{shown} | row {shown}"
    assert rest.startswith(("- " if what == "items" else "") + following)


@pytest.mark.parametrize("text_only", [False, True])
def test_all_parts_together_are_the_whole_page(show: Show, text_only: bool) -> None:
    tab = show("".join(f"<p>Paragraph {i} " + "word " * (i % 40) + "</p>" for i in range(300)))
    whole = get_html(tab, text_only, maxchars=10**9)
    start, parts = 0, ""
    while True:
        part = get_html(tab, text_only, maxchars=3000, start=start)
        assert len(part) <= 3000
        more = re.search(r"\n?\[… (\d+) of (\d+) characters left: start=(\d+)\]$", part)
        if not more:
            break
        assert int(more[1]) + int(more[3]) == int(more[2]) == len(whole)
        start = int(more[3])
        parts += part[: more.start()] + "\n"
    assert parts + part == whole


def test_one_line_longer_than_the_limit_is_cut_in_it() -> None:
    text = fold(["x" * 10_000], [], 1_000)
    assert len(text) <= 1_000 and re.search(r"\[… \d+ of 10000 characters left: start=\d+\]$", text)


def test_a_start_behind_the_end_is_said_to_be_there() -> None:
    assert fold(["short"], [], 1_000, start=5) == "[nothing from 5 on: the page has 5 characters]"


ARTICLE = "".join(f"<p>This is paragraph {i} of a long story, and it has {'many ' * 20}words.</p>" for i in range(60))
FOOTER = (
    "<footer><p>"
    + "We tell you here at length what you may not do with this. " * 8
    + "<a href='/terms'>Terms</a> apply.</p></footer>"
)


def test_long_boilerplate_of_a_long_page_is_folded_and_its_rest_can_be_had(show: Show) -> None:
    tab = show(ARTICLE + FOOTER)
    html = get_html(tab)
    folded = re.search(r"<p (\d+) \+(\d+)>We tell you here at.*<a \d+[^>]*>Terms", html)
    assert folded and html.count("This is paragraph") == 60
    text = execute_js_rich(f"return el({folded[1]}).innerText", tab, no_monitor=True)["value"]
    assert text.count("what you may not do") == 8


def test_what_a_page_tells_its_user_is_not_folded(show: Show) -> None:
    error = "Your card was declined by the bank: take another one, or ask them to allow payments in shops abroad, then send the form again."
    html = get_html(show(f"<div class='popup banner'><p role=alert>{error}</p></div>{ARTICLE}{FOOTER}"))
    assert error in html and re.search(r"<p \d+ \+\d+>We tell you", html)


def test_the_content_is_not_folded_only_because_its_class_sounds_like_boilerplate(show: Show) -> None:
    html = get_html(show(f"<div class='comments widget'>{ARTICLE}</div>"))
    assert html.count("words.") == 60


def test_a_short_page_is_shown_in_full(show: Show) -> None:
    terms = "You agree to everything that we may think of later, and to all that we have not thought of yet."
    page = f"<h1>Pay</h1><div class='modal legal'><p>{terms}</p><a href='/a/really/long/address/of/the/terms/of/this/site'>Terms</a></div>"
    html = get_html(show(page))
    assert terms in html and "/a/really/long/address/of/the/terms/of/this/site" in html


@pytest.mark.parametrize("text_only", [False, True])
def test_an_inbox_shows_each_mail_in_a_line_and_the_open_one_in_full(show: Show, text_only: bool) -> None:
    html = get_html(show("inbox.html"), text_only)
    rows = [line for line in html.splitlines() if " May" in line]
    assert len(rows) == 30 and all(
        f"enclosed number {i}," in row and row.endswith(" May") for i, row in enumerate(rows)
    )
    assert "to the account AT61 1904 3002 3457 3201, and give the number 2026-0311" in html
    if not text_only:
        assert all(
            re.match(r"<input \d+ type=checkbox label=Select> \| <button \d+>(Not s|S)tarred", row) for row in rows
        )
        assert html.count("Archive") == 1  # what comes up under the pointer only
        assert re.search(r"<div \d+ contenteditable label=Reply>$", html, re.M)


@pytest.mark.parametrize("text_only", [False, True])
def test_settings_show_every_field_its_state_and_the_help_beside_it(show: Show, text_only: bool) -> None:
    html = get_html(show("settings.html"), text_only)
    assert html.count("leave it empty to show nothing at all.") == 40
    for part in ("The new password is too short.", "you can cancel until the day before", "2 unsaved changes", "v74"):
        assert part in html
    if not text_only:
        assert len(re.findall(r"<button \d+ role=switch checked>", html)) == 4
        assert re.search(r"<input \d+ type=password name=pw invalid>", html)
        assert len(re.findall(r"type=radio name=lvl\d value=\w+ checked>", html)) == 8


@pytest.mark.parametrize("text_only", [False, True])
def test_search_results_keep_their_texts_and_addresses_apart(show: Show, text_only: bool) -> None:
    html = get_html(show("results.html"), text_only)
    for i in range(20):
        assert (
            f"what page {i} says about lamps, shades and bulbs, with a comparison of {i + 3} models and their prices"
            in html
        )
    heads = [line for line in html.splitlines() if "how to choose a lamp for room" in line]
    assert len(heads) == 20 and not any("Prices" in line for line in heads)
    if not text_only:
        assert all(re.match(rf"<h3><a \d+ [^>]*id={1000 + i}>", line) for i, line in enumerate(heads))
        assert re.search(r"<a \d+ /images\?q=lamp>Images", html)
    else:
        assert "All Images News" in html


def test_what_is_said_several_times_on_a_page_of_cards_is_shown_each_time(show: Show) -> None:
    said = "The last backup of this server has failed, and nobody has looked into it"
    card = "<div class=widget><h2>{0}</h2><p class=teaser>{1}.</p><p>Open</p><a href='/server/{0}/details/and/more'>Details</a></div>"
    html = get_html(show("<h2>Open</h2>" + "".join(card.format(i, said) for i in range(60))))
    assert (html.count(said), html.count("\nOpen")) == (60, 60)


def test_entries_of_several_lines_begin_a_line_of_their_own(show: Show) -> None:
    card = "<li><a href='/p/{0}'>Lamp {0}</a><p>{0},99 €</p><button>Add</button></li>"
    html = get_html(show(f"<ul>{''.join(card.format(i) for i in range(20))}</ul>"))
    assert len(re.findall(r"^- <a \d+ /p/\d+>Lamp \d+$", html, re.M)) == 20


@pytest.mark.parametrize(
    "policy",
    ["script-src 'none'", "require-trusted-types-for 'script'; trusted-types none", "default-src 'none'; sandbox"],
)
def test_a_page_with_a_strict_policy_is_read_like_any_other(show: Show, policy: str) -> None:
    tab = show("<h1>Strict</h1><button>Go</button>", headers={"Content-Security-Policy": policy})
    assert get_html(tab) == "<h1>Strict\n<button 1>Go"


def test_a_page_that_redefines_what_scripts_use_is_read_like_any_other(show: Show) -> None:
    page = "<h1>Odd</h1><script>Array.prototype.push = Map = WeakMap = getComputedStyle = null; Element.prototype.getAttribute = () => { throw 1 }</script>"
    assert get_html(show(page)) == "<h1>Odd"


@pytest.mark.parametrize(
    ("kind", "body", "shown"),
    [
        ("text/plain", "just\ntext", "just"),
        ("application/json", '{"a": 1}', '"a": 1'),
        ("application/xml", "<r><v>x</v></r>", "x"),
    ],
)
def test_documents_that_are_no_html_are_read(show: Show, kind: str, body: str, shown: str) -> None:
    assert shown in get_html(show(body, headers={"Content-Type": kind}))


def test_a_page_that_cannot_be_read_is_an_error_that_says_why() -> None:
    class Nothing:
        def page_script(self, *args: object, **how: object) -> dict[str, object]:
            return {
                "tab": "1",
                "url": "https://x.test/",
                "frames": [{"frame": 0, "error": "it is a page of the browser"}],
            }

    with pytest.raises(ToolError, match=r"https://x.test/.*\(it is a page of the browser\).*jump"):
        get_html(Nothing())  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_page_of_twenty_megabytes_is_read(show: Show) -> None:
    page = "<main>" + "".join(f"<p>Line {i} {'lorem ipsum ' * 80}</p>" for i in range(20_000)) + "</main>"
    html = get_html(show(page))
    assert (
        len(html) <= 35_000
        and html.startswith("Line 0")
        and "characters left: start=" in html
        or "more of 20000" in html
    )


def test_what_is_hidden_stays_hidden_inside_and_what_is_shown_again_is_shown(show: Show) -> None:
    html = get_html(
        show("<div style='visibility:hidden'>a <b>b</b> <p>c</p> <i style='visibility:visible'>shown</i></div>")
    )
    assert html == "shown"


def test_a_picture_and_its_headline_are_one_entry_but_a_headline_and_a_link_in_prose_are_two(show: Show) -> None:
    card = "<div><a href='/film'><img src='data:,' alt='Film'></a><h3><a href='/film'>Film</a></h3></div>"
    prose = "<h3><a href='/book'>Book</a></h3><p>This <a href='/book'>Book</a> is good.</p>"
    assert get_html(show(card + prose)).splitlines() == [
        "<h3><a 2+1 /film>Film",
        "<h3><a 3 /book>Book",
        "This <a 4 =3>Book</a> is good.",
    ]


def test_fields_that_are_named_like_properties_of_their_form_do_no_harm(show: Show) -> None:
    names = (
        "children",
        "childNodes",
        "attributes",
        "tagName",
        "nodeType",
        "id",
        "childElementCount",
        "className",
        "parentNode",
    )
    fields = "".join(f"<div><input name={name}></div>" for name in (*names, "a", "b", "c", "d", "e"))
    html = get_html(show(f"<form tabindex=-1 class=x>{fields}</form><p>After</p>"))
    assert html.count("<input") == 14 and html.endswith("After") and "could not be read" not in html


def test_what_cannot_be_read_costs_no_more_than_itself(show: Show) -> None:
    page = "<p>Before</p><form><input name=hasAttribute><input name=getAttribute><p>Inside</p></form><p>After</p>"
    html = get_html(show(page))
    assert html.startswith("Before") and html.endswith("After")


def test_a_line_that_comes_again_is_marked_and_not_left_out(show: Show) -> None:
    words = "This comment was taken away by somebody who looks after this place."
    prose = "".join(
        "<p>" + f"Somebody says sentence number {i}, which is long enough to be read as prose. " * 5 for i in range(60)
    )
    html = get_html(show(f"<h2>One</h2><p>{words}</p>{prose}<h2>Two</h2><p>{words}</p>"))
    assert html.count(words) == 1 and html.splitlines()[-1] == "〃 This comment was tak…"
