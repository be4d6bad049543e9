"""The text: novels of Jane Austen (in the public domain) from the Debian and Ubuntu package r-cran-janeaustenr."""

import hashlib
import zlib
from pathlib import Path

RDATA = Path("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
# Of the novels' lines joined by newlines, as janeaustenr 1.0.0 has them.
SHA256 = {
    "persuasion": "726513a6c18bb678427bcbcf7c72d0d20816a67c25b0471b26ddcabf3ebac140",
    "emma": "dd08b340a56ad4a0a00718d5682528a5a5886ae0aef91c9e0fa528074fa64b75",
}
STRING_VECTOR = b"\x00\x00\x00\x10"  # R's serialisation: type 16, then a count and as many strings


def string_vector(serialised):
    """The first vector of strings in R's XDR serialisation."""
    at = serialised.index(STRING_VECTOR) + 4
    count, at = int.from_bytes(serialised[at : at + 4], "big"), at + 4
    lines = []
    for _ in range(count):
        length = int.from_bytes(serialised[at + 4 : at + 8], "big")  # after four bytes of type and flags
        lines.append(serialised[at + 8 : at + 8 + length].decode())
        at += 8 + length
    return lines


def novels(package):
    """Name and lines of each novel in the unpacked package: its data file is zlib streams, each after four bytes of
    size."""
    rest = (Path(package) / RDATA).read_bytes()
    while rest:
        stream = zlib.decompressobj()
        lines = string_vector(stream.decompress(rest[4:]))
        rest = stream.unused_data
        yield next(line for line in lines if line.strip()).strip().lower(), lines


def novel(package, name):
    """A novel's paragraphs, each unwrapped to one line, with an empty line between them."""
    lines = dict(novels(package))[name]
    text = "\n".join(lines)
    digest = hashlib.sha256(text.encode()).hexdigest()
    if digest != SHA256[name]:
        raise SystemExit(f"{name}: the package holds another text than the one measured (sha256 {digest})")
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
