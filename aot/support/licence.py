"""Which licence a generated file states, in the form of SPDX (https://spdx.dev/learn/handling-license-info/).

What the compiler writes is its user's: 0BSD asks for nothing, not even for a notice.  The numbers of the model are not the
compiler's to license: their file says that they stand under the model's own licence.  The files of crt, copied or included, keep
Apache-2.0.
"""

from __future__ import annotations

GENERATED = "0BSD"
PARAMETERS = "LicenseRef-model"


def spdx_line(licence: str = GENERATED) -> str:
    """The comment in C that stands in the first line of a file; no line break at the end."""
    return f"/* SPDX-License-Identifier: {licence} */"
