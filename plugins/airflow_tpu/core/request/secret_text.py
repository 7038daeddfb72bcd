"""What of a typed text is a secret: by its form, or by the name that it is given to.

What is typed is stored in Airflow's database, shown in its UI and written to the VM's job file.
"""

from __future__ import annotations

import re

HINT = "looks like a secret; keep it in an Airflow connection or Variable, and name that in the field secrets"

# Names that end so hold secrets; TOKENIZERS_PARALLELISM and GOOGLE_APPLICATION_CREDENTIALS (a path) do not.
_NAME = re.compile(r"(^|_)(PASSWORD|PASSWD|SECRET|API_?KEY|PRIVATE_?KEY|ACCESS_?KEY)$", re.IGNORECASE)
# A token of a service is long; PAD_TOKEN=[PAD] and MAX_TOKEN=512 are a language model's.
_TOKEN_NAME = re.compile(r"(^|_)TOKEN$", re.IGNORECASE)
_TOKEN_LENGTH = 8
_TOKEN_IN_TEXT = re.compile(r"(?=[A-Za-z]*\d)[A-Za-z0-9]{16}")  # <|reserved_special_token_250|> is a model's
_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\"private_key\"\s*:"
    r"|\bya29\.[\w-]{20,}"
    r"|\bAIza[\w-]{35}"
    r"|\bgh[opsu]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}"
    r"|\bhf_[A-Za-z0-9]{30,}"
    r"|\bsk-[\w-]{20,}"
    r"|\bAKIA[A-Z0-9]{16}\b"
    r"|\bxox[abp]-[\w-]{20,}"
    r"|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\."
    r"|\bwandb\s+login\s+(?:-\S+\s+)*[0-9a-f]{40}"
)
# NAME=VALUE, --name VALUE, --name=VALUE, "name": "VALUE"
_PAIR = re.compile(
    r"""(?:(?<![\w$.-])(?P<variable>[A-Za-z_]\w*)=|(?<!\S)--?(?P<option>[A-Za-z][\w.-]*)(?:=|\s+)"""
    r"""|["'](?P<key>[A-Za-z_]\w*)["']\s*:\s*(?=["']))["']?(?P<value>[^\s"']*)"""
)
# A variable, a template, a placeholder, an expression, an option, a path or a file: no secret itself.
_ELSEWHERE = re.compile(
    r"[$<(\[{/.-]|gs://|projects/|.*[(\[]|.*\.[a-z]{2,4}$|(?i:true|false|none|null|yes|no|your\w*|x*|\d)$"
)


def looks_secret(text: str) -> bool:
    """Whether a text has the form of a key or a token of a well-known service."""
    return _VALUE.search(text) is not None


def is_named_secret(name: str, content: str) -> bool:
    """Whether a variable holds a secret by its name.

    Airflow masks nothing shorter than five characters, so a short password is refused like a long one.
    """
    if not content or content.startswith(("/", "gs://", "projects/")):
        return False
    return bool(_NAME.search(name) or (_TOKEN_NAME.search(name) and len(content) >= _TOKEN_LENGTH))


def named_secret(text: str) -> str:
    """Return the name that a secret is given to in a command line, empty if there is none."""
    for pair in _PAIR.finditer(text):
        given, value = pair["variable"] or pair["option"] or pair["key"], pair["value"]
        name = given.rpartition(".")[2].replace("-", "_")
        if _ELSEWHERE.match(value) or not is_named_secret(name, value):
            continue
        if _NAME.search(name) or _TOKEN_IN_TEXT.search(value):
            return given
    return ""
