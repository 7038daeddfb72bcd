# SPDX-License-Identifier: Apache-2.0
"""The report of a calendar month: read from the ledger, written beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.core.ledger.billable import StoredBytes
from airflow_tpu.core.ledger.usage import Usage, fold
from airflow_tpu.core.report.month import Month
from airflow_tpu.core.report.month_files import report_files
from airflow_tpu.hooks.bucket_facts import split_uri
from airflow_tpu.stores.ledger_reader import LedgerReader
from airflow_tpu.stores.store import Store

if TYPE_CHECKING:
    from airflow_tpu.core.catalogue.catalogue import Catalogue

FOLDER = "reports"


@dataclass(frozen=True)
class ReportStore(Store):
    """The reports below ``gs://bucket/prefix/reports/``."""

    def usage(self, month: Month, catalogue: Catalogue) -> Usage:
        """Everything that was asked for in a month, and what the bucket keeps now.

        :param month: which.
        :param catalogue: gives the list prices.
        """
        below = f"{self.root}/"
        infos = self.hook.listing(below)  # shows what is kept, and which part of the ledger is new
        events = LedgerReader().listed(self.hook, self.root, infos)
        stored = StoredBytes(sum(info.size for info in infos), self.hook.facts.soft_deleted(below))
        return fold(events, catalogue, self.clock.now(), stored, month.selection)

    def write(self, usage: Usage, month: Month) -> list[str]:
        """Write the files of a month over those of an earlier try; the Markdown last, when what it shows is there.

        :return: their URIs.
        """
        written = []
        for file in report_files(usage, month):
            uri = f"{self.root}/{FOLDER}/{file.name}"
            bucket, name = split_uri(uri)
            self.hook.upload(bucket, name, data=file.content, mime_type=file.media_type)
            written.append(uri)
        return written
