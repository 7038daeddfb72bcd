"""Words for the bill that grantees really got: data that has to travel to the TPU's region."""

from __future__ import annotations

from dataclasses import dataclass

PRICES = "https://cloud.google.com/storage/pricing"
"""Where Google lists what data transfer costs, by the pair of regions."""

_MULTI_REGIONS = ("US", "EU", "ASIA")
_GIB = 1024**3


@dataclass(frozen=True)
class Below:
    """How much lies below a URI.

    :param size: bytes of the live objects that were counted.
    :param complete: whether that is all of them; a listing of very many ends early.
    """

    size: int
    complete: bool = True


def sentence(location: str, region: str, below: Below | None) -> str:
    """What a bucket in another place costs.

    :param location: where the bucket is, in capitals.
    :param region: where the TPU is, in capitals.
    :param below: what lies below the URI, None if nobody could count it.
    """
    kind = "multi-region " if location in _MULTI_REGIONS else ""
    # No figure per GiB: the rates between regions were not looked up, and a wrong one is worse than none.
    return (
        f"is in {kind}{location}, the TPU in {region}; every GiB between them is billed. {_amount(below)}. The price "
        f"of a GiB depends on the pair of regions and is not known here, see {PRICES}; the best documented accident of "
        "this kind cost a grantee about 2,500 USD in January 2026"
    )


def _amount(below: Below | None) -> str:
    if below is None:
        return "How much lies below this URI is unknown"
    if not below.size:
        return "Nothing lies below this URI yet; what is written to it counts"
    least = "" if below.complete else "at least "
    gib = below.size / _GIB
    number = f"{gib:,.1f} GiB" if gib >= 0.1 else f"{gib:.2g} GiB"
    return f"Below this URI lie {least}{number}, and each pass over them counts again"
