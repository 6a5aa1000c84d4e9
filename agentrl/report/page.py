"""The look of the report: one HTML page that needs no network and runs no script."""

from __future__ import annotations

from html import escape

# Colours: a categorical palette that stays apart for colour-blind eyes on either background.
STYLE = """
:root {
  color-scheme: light dark;
  --page: #f9f9f7; --card: #ffffff; --ink: #14140f; --soft: #55544f; --faint: #6f6e68; --rule: #e6e5de;
  --wash: #f3f2ec;
  --blue: #2a6fcc; --green: #14855f; --amber: #b87700; --violet: #5a48b8; --red: #cf3f3e; --gray: #8a8983;
  --good: #0d7a4f; --bad: #c22f2f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f0f0e; --card: #191918; --ink: #f4f3ee; --soft: #c2c1ba; --faint: #93928b; --rule: #2e2e2b;
  --wash: #232321;
    --blue: #5b9bee; --green: #2fb386; --amber: #d99a2b; --violet: #9d90ee; --red: #ee7370; --gray: #7c7b75;
    --good: #3fc78d; --bad: #f0807d;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.55 system-ui, -apple-system, "Segoe UI",
  "Helvetica Neue", "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1180px; margin: 0 auto; padding: 48px 24px 96px; }
header p { color: var(--soft); margin: 4px 0 0; }
h1 { font-size: 30px; line-height: 1.2; letter-spacing: -0.02em; margin: 0; font-weight: 650; }
h2 { font-size: 19px; letter-spacing: -0.01em; margin: 56px 0 4px; font-weight: 650; }
h2 + p { color: var(--soft); margin: 0 0 16px; max-width: 70ch; }
h3 { font-size: 13px; margin: 0; font-weight: 600; color: var(--soft); }
a { color: var(--blue); }
nav { display: flex; flex-wrap: wrap; gap: 4px 20px; margin-top: 20px; font-size: 14px; }
nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--blue); outline-offset: 2px; border-radius: 4px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(205px, 1fr)); gap: 12px; margin-top: 28px; }
.tile, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 16px 18px; }
.tile b { display: block; font-size: 26px; font-weight: 620; letter-spacing: -0.02em; line-height: 1.25;
  margin-top: 4px; }
.tile span { color: var(--faint); font-size: 13px; }
.tile.wide { grid-column: span 2; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(330px, 1fr)); gap: 12px; }
.grid.two { grid-template-columns: repeat(auto-fit, minmax(430px, 1fr)); }
.grid + .grid, .grid + .card { margin-top: 12px; }
.card header { display: flex; justify-content: space-between; align-items: baseline; gap: 12px; margin-bottom: 6px; }
.card header b { font-weight: 600; font-size: 15px; white-space: nowrap; }
.card > p { margin: 6px 0 0; color: var(--faint); font-size: 13px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font-size: 11px; fill: var(--faint); }
svg text.ink { fill: var(--soft); }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .axis { stroke: var(--gray); stroke-width: 1; opacity: 0.6; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; stroke: currentColor; }
svg .line.faint { stroke-width: 1.2; opacity: 0.35; }
svg .band { fill: currentColor; opacity: 0.14; }
svg .fill { fill: currentColor; }
svg .dot { fill: currentColor; stroke: var(--card); stroke-width: 1.5; }
svg .target { fill: transparent; }
svg circle.target:hover { fill: currentColor; fill-opacity: 0.25; }
svg rect.target:hover { fill: var(--ink); fill-opacity: 0.08; }
.blue { color: var(--blue); } .green { color: var(--green); } .amber { color: var(--amber); }
.violet { color: var(--violet); } .red { color: var(--red); } .gray { color: var(--gray); }
.good { color: var(--good); } .bad { color: var(--bad); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; list-style: none; margin: 6px 0 0; padding: 0;
  font-size: 12.5px;
  color: var(--soft); }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 3px; background: currentColor;
  margin-right: 6px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--faint); font-size: 12.5px; white-space: nowrap; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
.num { text-align: right; white-space: nowrap; }
.share { display: inline-block; height: 8px; border-radius: 2px; background: currentColor; min-width: 1px; }
.mono, pre, code { font: 12.5px/1.55 ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
details { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; margin-top: 10px; }
details > summary { cursor: pointer; padding: 12px 18px; display: flex; flex-wrap: wrap; gap: 4px 16px;
  align-items: baseline; }
details > summary::before { content: "\\25B8"; color: var(--faint); }
details[open] > summary::before { content: "\\25BE"; }
details > summary span { color: var(--faint); font-size: 13.5px; }
.inside { padding: 4px 18px 18px; }
.inside > h3 { margin: 18px 0 8px; }
.message { display: grid; grid-template-columns: 84px 1fr; gap: 12px; padding: 8px 0;
  border-top: 1px solid var(--rule); }
.message:first-of-type { border-top: 0; }
.message .role { color: var(--faint); font-size: 13px; }
.message.assistant .role { color: var(--blue); font-weight: 600; }
.message pre + pre { margin-top: 8px; }
.thinking { color: var(--soft); font-style: italic; }
.call { background: var(--wash); border-radius: 6px; padding: 6px 10px; }
.tokens { background: var(--wash); border-radius: 8px; padding: 10px 12px; max-height: 340px; overflow: auto; }
i { font-style: normal; border-radius: 2px; }
h3 i { padding: 1px 6px; margin-left: 6px; font-weight: 400; }
i.v0 { background: color-mix(in srgb, var(--blue) 26%, transparent); }
i.v1 { background: color-mix(in srgb, var(--amber) 30%, transparent); }
i.v2 { background: color-mix(in srgb, var(--green) 28%, transparent); }
i.v3 { background: color-mix(in srgb, var(--violet) 30%, transparent); }
.context { color: var(--faint); font-weight: 400; }
footer { margin-top: 64px; color: var(--faint); font-size: 13px; }
@media (max-width: 560px) {
  main { padding: 28px 14px 64px; }
  .grid, .grid.two { grid-template-columns: 1fr; }
  .tile.wide { grid-column: 1 / -1; }
  .message { grid-template-columns: 1fr; gap: 2px; }
}
@media print { details > .inside { display: block; } body { background: none; } }
"""

# The browser itself refuses script and network, whatever a model wrote.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(title: str, body: str) -> str:
    """A whole document; `body` is HTML already, `title` is text."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def section(name: str, about: str, body: str) -> str:
    """A titled part of the page."""
    anchor = anchor_of(name)
    head = f'<h2 id="{anchor}-h">{escape(name)}</h2><p>{escape(about)}</p>'
    return f'<section id="{anchor}" aria-labelledby="{anchor}-h">{head}{body}</section>'


def links(names: list[str]) -> str:
    """Links to the sections of these names."""
    items = "".join(f'<a href="#{anchor_of(name)}">{escape(name)}</a>' for name in names)
    return f'<nav aria-label="Sections">{items}</nav>'


def anchor_of(name: str) -> str:
    """The id of the section of a name."""
    return name.lower().replace(" ", "-")


def card(title: str, value: str, body: str, note: str = "") -> str:
    """A chart or table with its name, its present value and a note."""
    tail = f"<p>{escape(note)}</p>" if note else ""
    return f'<div class="card"><header><h3>{escape(title)}</h3><b>{escape(value)}</b></header>{body}{tail}</div>'


def tile(title: str, value: str, note: str = "", tone: str = "", is_wide: bool = False) -> str:
    """One figure in large type."""
    kind = "tile wide" if is_wide else "tile"
    figure = f'<b class="{tone}">{escape(value)}</b><span>{escape(note)}</span>'
    return f'<div class="{kind}"><h3>{escape(title)}</h3>{figure}</div>'


def fold(title: str, note: str, body: str, is_open: bool = False) -> str:
    """Something that opens at a click."""
    state = " open" if is_open else ""
    summary = f"<summary><b>{escape(title)}</b><span>{escape(note)}</span></summary>"
    return f'<details{state}>{summary}<div class="inside">{body}</div></details>'


def table(head: list[str], rows: list[list[str]], numbers: int = 0, is_html: bool = False) -> str:
    """Rows of text (of HTML when `is_html`); the last `numbers` columns stand right."""
    first = len(head) - numbers

    def cells(values: list[str], tag: str, as_html: bool) -> str:
        shown = values if as_html else [escape(value) for value in values]
        kinds = [' class="num"' if i >= first else "" for i in range(len(values))]
        scope = ' scope="col"' if tag == "th" else ""
        return "".join(f"<{tag}{scope}{kind}>{value}</{tag}>" for kind, value in zip(kinds, shown, strict=True))

    body = "".join(f"<tr>{cells(row, 'td', is_html)}</tr>" for row in rows)
    top = f"<thead><tr>{cells(head, 'th', False)}</tr></thead>"
    return f'<div class="scroll"><table>{top}<tbody>{body}</tbody></table></div>'
