"""How much longer a round of OpenFGL takes, from measurements that were made once."""

from __future__ import annotations

FACTORS = {
    ("coauthor_cs", "fedavg"): 31.5,
    ("twin:corafull", "fedavg"): 29.8,
    ("twin:arxiv", "fedavg"): 21.5,
    ("amazon_computers", "fedavg"): 10.8,
    ("amazon_computers", "fedproto"): 8.9,
}
"""(graph, method) -> CPU seconds of OpenFGL's round over those of ours. A twin stands for its shape."""
MEASURED = (
    "OpenFGL itself and fedepd in turn on one machine (AMD, AVX-512), on the same clients, one thread, every "
    "round evaluated on both sides, ours scoring two models where the method has a common one"
)


def beside(data: str, methods: list[str]) -> str:
    """A sentence on what OpenFGL's rounds cost on a graph; empty where it was not measured."""
    known = [f"{method} {FACTORS[data, method]:g}x" for method in methods if (data, method) in FACTORS]
    if not known:
        return ""
    return f"OpenFGL's round over ours on {data}: {', '.join(known)} (not measured now, but once: {MEASURED})"
