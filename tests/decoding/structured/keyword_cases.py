"""For every keyword of JSON Schema that is enforced: schemas, texts that they allow, texts that they do not."""

from typing import Any

INTEGER, STRING, ARRAY, OBJECT = ({"type": kind} for kind in ("integer", "string", "array", "object"))
A_ONLY = {**OBJECT, "properties": {"a": INTEGER}}
NODE = {**OBJECT, "properties": {"next": {"$ref": "#/$defs/node"}}, "additionalProperties": False}

# keyword -> [(schema, texts it allows, texts it does not allow)]
CASES: dict[str, list[tuple[Any, list[str], list[str]]]] = {
    "type": [
        (INTEGER, ["0", "-7", "12"], ["1.0", '"1"', "01", "true", "1e2", "+1", " 1", "1 "]),
        ({"type": "number"}, ["0.5", "-1e-9", "3"], [".5", "1.", "NaN", "Infinity", '"1"']),
        (STRING, ['""', '"a\\n\\"\\\\"', '"é日本\U0001f600"'], ["'a'", '"\n"', '"\\q"', '"\\u0041"', '"\x00"', "1"]),
        ({"type": ["string", "null"]}, ["null", '"a"'], ["1", "nul", "{}"]),
        ({"type": "boolean"}, ["true", "false"], ["True", "1", "null"]),
        ({"type": "null"}, ["null"], ["None", "0"]),
        (OBJECT, ["{}", '{"a": [1, {}]}'], ["[]", '{"a"}', '{"a": 1,}', "{'a': 1}", "{1: 2}"]),
        (ARRAY, ["[]", "[1, [2], {}]"], ["{}", "[1,]", "[1 2]"]),
    ],
    "enum": [
        (
            {"enum": ["a", 'é"\\\n', 1, 2.5, None, True, [1], {"k": "v"}]},
            ['"a"', '"é\\"\\\\\\n"', "1", "2.5", "null", "true", "[1]", '{"k": "v"}'],
            ['"b"', '"ab"', "2", "false", "[]", "[2]", '{"k": "w"}', '"\\u0061"'],
        ),
        ({"enum": ["abc", "x"], "maxLength": 1}, ['"x"'], ['"abc"']),
        ({"type": "string", "enum": ["a", 1]}, ['"a"'], ["1"]),
    ],
    "const": [
        ({"const": "日本"}, ['"日本"'], ['"日"', '"\\u65e5\\u672c"', "1"]),
        ({"const": {"a": [1, None]}}, ['{"a": [1, null]}'], ["{}", '{"a": [1]}', '{"a": [1, null], "b": 1}']),
        ({"const": -0.25}, ["-0.25"], ["0.25", "-0.251", "-0"]),
    ],
    "minLength": [({**STRING, "minLength": 2}, ['"ab"', '"日本"', '"\\n\\n"'], ['""', '"a"', '"日"', '"\\n"'])],
    "maxLength": [({**STRING, "maxLength": 2}, ['""', '"日本"', '"\U0001f600\U0001f600"'], ['"abc"', '"日本語"'])],
    "pattern": [
        ({**STRING, "pattern": "^[a-c]+$"}, ['"abc"'], ['""', '"abd"', '"ab\\n"']),
        ({**STRING, "pattern": "b"}, ['"abc"', '"b"'], ['"ac"']),
        ({**STRING, "pattern": "^a|b$"}, ['"ax"', '"xb"'], ['"xa"', '"bx"']),
        ({**STRING, "pattern": '^[^"]*$'}, ['"a\\\\\\n"'], ['"\\""', '"a\\"b"']),
        ({**STRING, "pattern": "^[^\\\\]*$"}, ['"\\""'], ['"\\\\"']),
        ({**STRING, "pattern": "^\\S+$", "maxLength": 3}, ['"a-b"'], ['"a b"', '"abcd"', '""']),
        ({"pattern": "^a$"}, ["1", '"a"'], ['"b"']),
        ({**STRING, "pattern": "^\\d$"}, ['"1"'], ['"٣"', '"a"']),
        ({**STRING, "pattern": "/"}, ['"a/b"'], ['"ab"']),
    ],
    "format": [
        (
            {**STRING, "format": "date"},
            ['"2024-02-29"', '"2000-02-29"'],
            ['"2023-02-29"', '"1900-02-29"', '"2024-04-31"'],
        ),
        (
            {**STRING, "format": "time"},
            ['"23:59:59Z"', '"00:00:00.5+01:00"'],
            ['"24:00:00Z"', '"10:00Z"', '"10:00:00"'],
        ),
        ({**STRING, "format": "date-time"}, ['"2024-01-31T00:00:00Z"'], ['"2024-01-31"', '"2024-01-32T00:00:00Z"']),
        ({**STRING, "format": "duration"}, ['"P1Y2M3DT4H5M6S"', '"PT1S"', '"P2W"'], ['"P"', '"PT"', '"P1Y2D"', '"1D"']),
        ({**STRING, "format": "email"}, ['"a.b+c@d-e.org"'], ['"a"', '"a@"', '".a@b"', '"a@-b"']),
        ({**STRING, "format": "hostname"}, ['"a-1.b"', '"x"'], ['"-a"', '"a-"', '"a..b"', '"a_b"']),
        ({**STRING, "format": "ipv4"}, ['"255.0.10.9"'], ['"256.0.0.1"', '"1.2.3"', '"01.2.3.4"']),
        (
            {**STRING, "format": "ipv6"},
            ['"::"', '"1:2:3:4:5:6:7:8"', '"::ffff:1.2.3.4"'],
            ['"1::2::3"', '"1:2"', '"g::"'],
        ),
        (
            {**STRING, "format": "uri"},
            ['"http://a.b:80/c?d=%20#e"', '"mailto:x@y.z"'],
            ['"a b"', '"//a"', '"http://a b"'],
        ),
        (
            {**STRING, "format": "uuid"},
            ['"01234567-89ab-cdef-0123-456789abcdef"'],
            ['"0123456789abcdef0123456789abcdef"'],
        ),
        ({**STRING, "format": "json-pointer"}, ['""', '"/a~1b/c"'], ['"a"', '"/~2"']),
        ({**STRING, "format": "date", "pattern": "^2024"}, ['"2024-01-01"'], ['"2023-01-01"', '"2024"']),
    ],
    "minimum": [
        ({**INTEGER, "minimum": 3}, ["3", "40"], ["2", "-3", "-40"]),
        ({"type": "number", "minimum": 0.5}, ["0.5"], ["0.49", "1e-9"]),
    ],
    "maximum": [
        ({**INTEGER, "maximum": 12, "minimum": -1}, ["12", "-1", "0"], ["13", "-2", "100"]),
        ({"type": "number", "maximum": -0.5}, ["-0.6"], ["-0.4", "0", "1"]),
    ],
    "exclusiveMinimum": [({"type": "number", "exclusiveMinimum": 0}, ["0.1", "7"], ["0", "0.0", "-0", "-1"])],
    "exclusiveMaximum": [
        ({"type": "number", "exclusiveMaximum": 0, "exclusiveMinimum": -0.5}, ["-0.25"], ["-0", "0", "-0.0", "-0.5"]),
        ({**INTEGER, "exclusiveMaximum": 5}, ["4"], ["5", "50"]),
        ({**INTEGER, "exclusiveMaximum": 0, "minimum": -3}, ["-1", "-3"], ["0", "-0", "-4"]),
    ],
    "multipleOf": [
        ({**INTEGER, "multipleOf": 7}, ["0", "14", "-7"], ["15", "1"]),
        ({"type": "number", "multipleOf": 0.01}, ["0.07", "1.5", "3"], ["0.001", "0.075"]),
        ({**INTEGER, "allOf": [{"multipleOf": 4}, {"multipleOf": 6}]}, ["12", "24"], ["4", "6", "8"]),
    ],
    "properties": [
        ({**A_ONLY, "required": ["a"]}, ['{"a": 1}', '{"a": 1, "b": "x"}'], ["{}", '{"a": "x"}', '{"a": 1, "a": "x"}']),
        (A_ONLY, ["{}", '{"b": 1}'], ['{"b": 1, "a": "x"}', '{"\\u0061": "x"}', '{"a": 1, "\\u0061": "x"}']),
        ({"properties": {"a": False}}, ["{}", "1"], ['{"a": 1}']),
        (
            {**OBJECT, "properties": {'é"\n': INTEGER}, "required": ['é"\n']},
            ['{"é\\"\\n": 1}'],
            ["{}", '{"é\\"\\n": "x"}'],
        ),
    ],
    "required": [
        ({"required": ["a", "b"], **OBJECT}, ['{"a": 1, "b": 2}'], ["{}", '{"a": 1}', '{"b": 2}']),
        ({"required": ["a"]}, ["1", '{"a": 1}'], ["{}"]),
    ],
    "additionalProperties": [
        (
            {**A_ONLY, "additionalProperties": False},
            ["{}", '{"a": 1}'],
            ['{"b": 1}', '{"a": 1, "b": 1}', '{"a": 1, "a": 2}'],
        ),
        (
            {**A_ONLY, "additionalProperties": STRING},
            ['{"a": 1, "b": "x"}'],
            ['{"b": 1}', '{"a": "x"}', '{"\\u0061": "x"}'],
        ),
    ],
    "patternProperties": [
        (
            {**OBJECT, "patternProperties": {"^x": INTEGER}},
            ['{"x1": 1, "y": "z"}'],
            ['{"x1": "z"}', '{"\\u0078": "z"}'],
        ),
        ({**OBJECT, "patternProperties": {"^x": INTEGER}, "additionalProperties": False}, ['{"x": 1}'], ['{"y": 1}']),
        (
            {**OBJECT, "properties": {"xy": STRING}, "patternProperties": {"^x": {"type": ["integer", "string"]}}},
            ['{"xy": "a"}'],
            ['{"xy": 1}'],
        ),
    ],
    "minProperties": [
        ({**OBJECT, "minProperties": 1}, ['{"a": 1}'], ["{}"]),
        ({**OBJECT, "required": ["a", "b"], "minProperties": 2}, ['{"a": 1, "b": 1}'], ['{"a": 1}']),
    ],
    "maxProperties": [
        ({**OBJECT, "maxProperties": 1}, ["{}", '{"a": 1}'], ['{"a": 1, "b": 2}']),
        (
            {**OBJECT, "maxProperties": 2, "required": ["a"], "properties": {"a": True}},
            ['{"a": 1, "b": 2}'],
            ['{"a": 1, "b": 2, "c": 3}'],
        ),
        (
            {**OBJECT, "maxProperties": 2, "properties": {"a": True, "b": True}, "additionalProperties": False},
            ['{"a": 1, "b": 2}'],
            ['{"c": 1}'],
        ),
    ],
    "items": [
        ({**ARRAY, "items": INTEGER}, ["[]", "[1, 2]"], ['["a"]', '[1, "a"]']),
        ({**ARRAY, "items": False}, ["[]"], ["[1]"]),
        ({**ARRAY, "prefixItems": [STRING], "items": INTEGER}, ['["a", 1]'], ['["a", "b"]', "[1]"]),
    ],
    "prefixItems": [({**ARRAY, "prefixItems": [INTEGER, STRING]}, ["[]", "[1]", '[1, "a", {}]'], ['["a"]', "[1, 2]"])],
    "minItems": [
        ({**ARRAY, "items": STRING, "minItems": 2, "maxItems": 2}, ['["a", "b"]'], ["[]", '["a"]', '["a", "b", "c"]'])
    ],
    "maxItems": [({**ARRAY, "maxItems": 1}, ["[]", "[1]"], ["[1, 2]"])],
    "uniqueItems": [
        ({**ARRAY, "uniqueItems": False}, ["[1, 1]"], ["1"]),
        ({**ARRAY, "uniqueItems": True, "maxItems": 1}, ["[1]"], ["[1, 1]"]),
    ],
    "allOf": [
        ({"allOf": [{**STRING, "pattern": "^a"}, {"pattern": "b$"}]}, ['"ab"', '"aab"'], ['"a"', '"ba"', "1"]),
        ({"allOf": [{**OBJECT, "required": ["a"]}, A_ONLY]}, ['{"a": 1}'], ["{}", '{"a": "x"}']),
        ({"allOf": [{"minimum": 3}, {"maximum": 5}], **INTEGER}, ["4"], ["2", "6"]),
    ],
    "anyOf": [
        ({"anyOf": [INTEGER, {**STRING, "maxLength": 1}]}, ["1", '"a"'], ['"ab"', "null"]),
        ({"anyOf": [INTEGER, STRING], "maximum": 3}, ["3", '"a"'], ["4"]),
    ],
    "oneOf": [
        ({"oneOf": [INTEGER, STRING]}, ["1", '"a"'], ["null"]),
        (
            {"oneOf": [{**OBJECT, "required": ["k"], "properties": {"k": {"const": c}, c: INTEGER}} for c in "pq"]},
            ['{"k": "p", "p": 1, "q": "x"}', '{"k": "q", "q": 1}'],
            ['{"k": "p", "p": "x"}', '{"k": "r"}'],
        ),
    ],
    "$ref": [
        (
            {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
            ["{}", '{"next": {"next": {}}}'],
            ['{"next": 1}', '{"next": {"nex": {}}}'],
        ),
        ({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": INTEGER}}, ["1"], ['"1"']),
        (
            {**OBJECT, "properties": {"child": {"$ref": "#"}, "n": INTEGER}, "additionalProperties": False},
            ['{"child": {"n": 1}}'],
            ['{"child": {"n": "x"}}'],
        ),
        ({"$ref": "#/$defs/s", "maxLength": 1, "$defs": {"s": STRING}}, ['"a"'], ['"ab"', "1"]),
    ],
    "$defs": [({"$defs": {"unused": {"what": 1}}, **INTEGER}, ["1"], ['"a"'])],
    "definitions": [({"definitions": {"i": INTEGER}, "$ref": "#/definitions/i"}, ["1"], ['"a"'])],
}
