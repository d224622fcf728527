"""Where a run's data came from, so that resuming and exporting find it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedepd.clients.client_file import ClientFile
from fedepd.clients.clients_dir import read_files
from fedepd.clients.imputing import open_rules
from fedepd.clients.scaling import with_features
from fedepd.datasets import data_folder, is_graph_file, load
from fedepd.files import absolute
from fedepd.types import ClientData, Graph

Data = Graph | Sequence[ClientData | ClientFile]
"""A graph that is yet to be cut, clients, or clients whose files may yet be split."""


@dataclass(frozen=True)
class Source:
    """A dataset's name or a file, or a folder of clients.

    It is no part of a run's identity, but the hash of its content is.
    """

    data: str | None = None
    data_dir: str | None = None
    clients_dir: str | None = None

    @classmethod
    def make(
        cls,
        data: str | Path | None,
        data_dir: str | Path | None = None,
        clients_dir: str | Path | None = None,
    ) -> Source:
        """With absolute paths, so that it is found from any folder."""
        if clients_dir is not None:
            return cls(clients_dir=str(absolute(clients_dir)))
        is_file = data is not None and is_graph_file(str(data))
        return cls(str(absolute(str(data))) if is_file else str(data), str(absolute(data_folder(data_dir))))

    def load(self, features: str = "raw") -> Graph | list[ClientFile]:
        """As it is on disk: cutting and splitting come afterwards, by an experiment's settings.

        ``features``: the setting of the run. A graph in float16 is rounded here, so that nobody keeps the
        float32 form.
        """
        if self.clients_dir is not None:
            return read_files(self.clients_dir)
        graph = load(str(self.data), self.data_dir, compact=True)
        early = features == "float16" and not open_rules(graph)  # gaps are filled in float32
        return with_features(graph, features, compact=True) if early else graph
