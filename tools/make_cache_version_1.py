#!/usr/bin/env python3
"""Writes a cache's file of version 2 as one of version 1 (docs/cache_file.md): the fixtures of tests/fixtures/cache_1.

    pip install numpy xxhash
    tools/make_cache_version_1.py VERSION_2 VERSION_1
"""

import json
import sys

import numpy as np
import xxhash

BYTES = {"f32": 4, "bf16": 2, "f16": 2}
SUMMED = ["token_page_hashes", "pooled_page_hashes", "sequences", "token_table", "pooled_table", "index_norm_weights",
          "inv_freq", "indexed", "rope_axes"]
ORDER = ["token_pages", "pooled_pages", *SUMMED[:5], "checksums", *SUMMED[5:]]


def padded(block):
    return np.pad(block, (0, -len(block) % 64))


def older_page(page, about, indexed, coordinates):
    """The bytes of a token page, a group's block after the other -> all keys of a head, then all values."""
    tokens, r, heads = (int(about[key]) for key in ("page_tokens", "group_tokens", "kv_heads"))
    key = int(about["head_dim"]) * BYTES[about["kv_dtype"]]
    value = 0 if about["values_alias_keys"] == "1" else int(about["value_dim"]) * BYTES[about["kv_dtype"]]
    raw = tokens * int(about["index_dim"]) * BYTES[about["index_dtype"]] if about["pooling"] == "mean" else 0
    out, at = [], 0

    def take(count):
        nonlocal at
        block = page[at:at + count]
        at += -(-count // 64) * 64
        return block

    for has_index in indexed:
        groups = take(tokens * heads * (key + value)).reshape(tokens // r, heads, r * (key + value))
        by_head = groups.transpose(1, 0, 2)
        out.append(padded(by_head[:, :, :r * key].reshape(-1)))
        if value:
            out.append(padded(by_head[:, :, r * key:].reshape(-1)))
        if has_index and raw:
            out.append(padded(take(raw)))
    if coordinates:
        out.append(padded(take(tokens * 12)))
    return np.concatenate(out)


def main():
    data = np.fromfile(sys.argv[1], dtype=np.uint8)
    length = int(data[:8].view("<u8")[0])
    header = json.loads(data[8:8 + length].tobytes())
    sections = {}
    for name in ORDER:
        begin, end = header[name]["data_offsets"]
        sections[name] = data[8 + length + begin:8 + length + end]
    about = header["__metadata__"]
    if about["seriatim"] != "cache/2":
        sys.exit(f"{sys.argv[1]} is {about['seriatim']}, not cache/2")
    about["seriatim"] = "cache/1"
    pages = [older_page(page, about, sections["indexed"], len(sections["rope_axes"]) > 0)
             for page in sections["token_pages"].reshape(header["token_pages"]["shape"])]
    header["token_pages"]["shape"][1] = len(pages[0])
    sections["token_pages"] = np.concatenate(pages)
    sections["token_page_hashes"] = np.array([xxhash.xxh3_64_intdigest(page) for page in pages], dtype="<u8").view("u1")
    end = 0
    for name in ORDER:
        header[name]["data_offsets"] = [end, end + len(sections[name])]
        end += len(sections[name])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 4096)
    text = len(text).to_bytes(8, "little") + text
    sums = [xxhash.xxh3_64_intdigest(text)] + [xxhash.xxh3_64_intdigest(sections[name].tobytes()) for name in SUMMED]
    sums.append(xxhash.xxh3_64_intdigest(np.array(sums, dtype="<u8").tobytes()))
    sections["checksums"] = np.array(sums, dtype="<u8").view("u1")
    with open(sys.argv[2], "wb") as file:
        file.write(text)
        for name in ORDER:
            file.write(sections[name].tobytes())


if __name__ == "__main__":
    main()
