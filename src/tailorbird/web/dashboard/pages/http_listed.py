"""Serve the pages Proof, Dead letters and Fleet. They are read-only, and the server renders them without scripts."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterator, Mapping

from fastapi import FastAPI
from starlette.responses import HTMLResponse

from tailorbird.web.dashboard.pages.http_panels import filled_html
from tailorbird.web.dashboard.panels.listed import ListedPage, ListedPart, Tone, moment

_escaped = html.escape
_TONES: Mapping[Tone, str] = {"good": "", "bad": " bad", "plain": " plain"}


def serve_listed(
    app: FastAPI, path: str, title: str, look: Callable[[int], ListedPage], others: Mapping[str, str]
) -> None:
    """Serve a page. `look` returns its content for a time (ms). `others` are the titles of other pages by path."""

    # not a coroutine: `look` may wait for a server
    @app.get(path, response_class=HTMLResponse)
    def page() -> HTMLResponse:
        now_ms = time.time_ns() // 1_000_000
        return listed_html(title, look(now_ms), others, now_ms)


def listed_html(title: str, page: ListedPage, others: Mapping[str, str], now_ms: int) -> HTMLResponse:
    """Return the HTML of a page, with all texts escaped."""
    links = (f'<a class="link" href="{_escaped(to)}">{_escaped(name)}</a>' for to, name in others.items())
    parts = {
        "title": _escaped(title),
        "pages": "".join(links),
        "wrong": "" if page.well else " wrong",
        "sentence": _escaped(page.sentence),
        "parts": "".join(piece for i, one in enumerate(page.parts) for piece in _pieces(one, i)),
        "moment": _escaped(moment(now_ms)),
    }
    return filled_html("listed.html", parts)


def _pieces(part: ListedPart, number: int) -> Iterator[str]:
    name = f"part-{number}"
    yield f'<section class="card" aria-labelledby="{name}" data-testid="part" data-state="{_escaped(part.state)}">'
    yield f'<h2 id="{name}">{_escaped(part.heading)}'
    if part.state:
        yield f' <span class="pill{_TONES[part.tone]}">{_escaped(part.state)}</span>'
    yield "</h2>"
    yield from (f'<p class="note">{_escaped(line)}</p>' for line in part.lines)
    if part.rows:
        heads = "".join(f'<th scope="col">{_escaped(head)}</th>' for head in part.heads)
        rows = "".join(
            f'<tr data-testid="listed">{"".join(f"<td>{_escaped(cell)}</td>" for cell in row)}</tr>'
            for row in part.rows
        )
        yield f'<div class="sideways" tabindex="0" role="region" aria-labelledby="{name}"><table class="table">'
        yield f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    if part.command:
        yield f'<p><code data-testid="command">{_escaped(part.command)}</code></p>'
    yield "</section>"
