"""Values as strict JSON."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import pytest

from shardkeep.cli.values_json import values_document
from shardkeep.errors import FormatError
from shardkeep.format.segments import ValueRecord
from shardkeep.format.values import decode_value, encode_value


def as_json(value: object) -> Any:
    record = ValueRecord("v", encode_value(value), per_rank=False)
    found = values_document([record], lambda record: decode_value(record.encoded))
    assert found.encoded == ()
    return json.loads(json.dumps(found.values["v"], allow_nan=False))


@pytest.mark.parametrize("value", [None, True, 7, 2**80, -1.5, "text", [1, [2]], {"a": {"b": []}}, {}])
def test_what_json_has_is_itself(value: object) -> None:
    assert as_json(value) == value


@pytest.mark.parametrize(
    ("value", "document"),
    [
        (math.inf, {"$type": "float", "text": "inf"}),
        ((1, "a"), {"$type": "tuple", "items": [1, "a"]}),
        ({2, 1}, {"$type": "set", "items": [1, 2]}),
        ({1: "x"}, {"$type": "dict", "items": [[1, "x"]]}),
        ({"$type": "x"}, {"$type": "dict", "items": [["$type", "x"]]}),
        (OrderedDict(a=1), {"$type": "OrderedDict", "items": [["a", 1]]}),
        (Counter("aa"), {"$type": "Counter", "items": [["a", 2]]}),
        (defaultdict(int, a=1), {"$type": "defaultdict", "factory": "int", "items": [["a", 1]]}),
        (deque([1], 3), {"$type": "deque", "maxlen": 3, "items": [1]}),
        (b"\x00\xff", {"$type": "bytes", "base64": "AP8="}),
        (1 + 2j, {"$type": "complex", "real": 1.0, "imag": 2.0}),
        (np.float64(0.5), {"$type": "numpy", "dtype": "<f8", "base64": "AAAAAAAA4D8=", "text": "0.5"}),
    ],
)
def test_everything_else_says_its_type(value: object, document: object) -> None:
    assert as_json(value) == document


def test_nan_is_kept() -> None:
    assert as_json([math.nan]) == [{"$type": "float", "text": "nan"}]


def test_arrays_keep_dtype_shape_and_bytes() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    found = as_json({"a": array})["a"]
    assert (found["$type"], found["dtype"], found["shape"]) == ("ndarray", "<i2", [2, 3])
    assert base64.b64decode(found["base64"]) == array.tobytes()


def test_a_value_that_only_another_package_can_decode_is_kept_encoded_and_spoils_no_other() -> None:
    def decode(record: ValueRecord) -> object:
        if record.path == "bad":
            raise FormatError("needs torch")
        return decode_value(record.encoded)

    records = [ValueRecord("bad", b"\x01", per_rank=False), ValueRecord("good", encode_value(3), per_rank=False)]
    found = values_document(records, decode)
    assert found.values["good"] == 3
    assert found.values["bad"] == {"$type": "encoded", "reason": "needs torch", "base64": "AQ=="}
    assert found.encoded == ("bad",)
