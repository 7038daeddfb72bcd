# SPDX-License-Identifier: Apache-2.0
"""Building blocks of the page's JSON: cells and tables of ready text, so that the browser only places it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

Cell = dict[str, str]
Column = tuple[str, str]
"""Heading and kind: ``word`` stays on one line, ``text`` may break anywhere, ``number`` stands to the right."""
UNKNOWN = "unknown"
HIDDEN = "a DAG you may not see"
WORD, TEXT, NUMBER = "word", "text", "number"
_TAIL = 2
"""Parts at the end of a node id that name the run by digest and the incarnation, and nothing else."""


def cell(text: str, note: str = "", href: str = "", tone: str = "") -> Cell:
    """One cell.

    :param text: what it says.
    :param note: smaller text below it.
    :param href: where it leads.
    :param tone: ``good``, ``warn``, ``bad`` or ``unknown``: never the only bearer of a meaning.
    """
    filled = {"text": text, "note": note, "href": href, "tone": tone}
    return {name: value for name, value in filled.items() if value or name == "text"}


def unknown(why: str = "") -> Cell:
    """A cell for what could not be found out."""
    return cell(UNKNOWN, note=why, tone="unknown")


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], empty: str, more: str = "") -> dict[str, Any]:
    """A table.

    :param columns: headings and kinds.
    :param rows: cells.
    :param empty: what stands there when there are no rows.
    :param more: a line below it.
    """
    heads = [{"text": text, "kind": kind} for text, kind in columns]
    return {"columns": heads, "rows": [list(row) for row in rows], "empty": empty, "more": more}


def moment(at: datetime) -> str:
    """An instant for people, in UTC."""
    return f"{at:%Y-%m-%d %H:%M} UTC"


def span(age: timedelta) -> str:
    """A length of time in its two largest units."""
    minutes = int(age.total_seconds() // 60)
    if minutes < 1:
        return "< 1 min"
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def console(path: str, project_id: str) -> str:
    """A page of Google's console."""
    return f"https://console.cloud.google.com/{quote(path)}?project={quote(project_id, safe='')}"


@dataclass(frozen=True)
class Reader:
    """Who looks at the page.

    :param visible: DAGs that Airflow lets the reader see; of others the page gives sums, but no names.
    :param everything: whether no DAG is hidden, so that a TPU of a forgotten run may be named too.
    """

    visible: Collection[str]
    everything: bool = False

    def may_see(self, dag_id: str | None) -> bool:
        """Whether the DAG may be named; None is one that neither lease nor ledger knows."""
        return self.everything if dag_id is None else dag_id in self.visible

    def dag(self, dag_id: str) -> str:
        """The DAG's name, if it may be said."""
        return dag_id if self.may_see(dag_id) else HIDDEN

    def node(self, node_id: str, dag_id: str | None) -> str:
        """The TPU's name; ours begin with the name of their DAG."""
        return node_id if self.may_see(dag_id) else "*-" + "-".join(node_id.split("-")[-_TAIL:])

    def run(self, dag_id: str, run_id: str) -> Cell:
        """A link to the DAG run in Airflow, relative to the page, so that any base path works."""
        if not self.may_see(dag_id):
            return cell(HIDDEN)
        return cell(dag_id, note=run_id, href=f"../{_run_page(dag_id, run_id)}")

    def run_elsewhere(self, dag_id: str, run_id: str, owner: str, address: str) -> Cell:
        """A run of another Airflow: a DAG of its name may exist here, and is not the one that is meant.

        :param owner: that Airflow in words.
        :param address: its ``base_url``, empty if it is not known: then there is no link.
        """
        if not self.may_see(dag_id):
            return cell(HIDDEN)
        is_page = address.startswith(("https://", "http://"))  # it comes from the bucket
        href = f"{address.rstrip('/')}/{_run_page(dag_id, run_id)}" if is_page else ""
        return cell(dag_id, note=f"{run_id}, of {owner}", href=href)


def _run_page(dag_id: str, run_id: str) -> str:
    return f"dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"
