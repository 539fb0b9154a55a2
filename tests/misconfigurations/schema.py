"""Validates JSON against the part of JSON Schema that docs/*.schema.json and `octavo config schema` use.

  schema.py --self-test <schema>   checks the schema itself, and that planted faults are seen
  schema.py <schema> <command...>   checks what a command prints
"""
import json
import re
import subprocess
import sys

KNOWN = {"$schema", "$id", "$defs", "$ref", "title", "description", "default", "type", "enum", "pattern", "anyOf",
         "minimum", "maximum", "minLength", "properties", "required", "additionalProperties", "minProperties",
         "maxProperties", "items", "minItems", "maxItems"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
         "integer": int, "number": (int, float)}


def is_type(value, name):
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


class Validator:
    def __init__(self, schema):
        self.root = schema
        self.check_schema(schema, "$")

    @staticmethod
    def of_file(path):
        with open(path, encoding="utf-8") as file:
            return Validator(json.load(file))

    def check_schema(self, schema, where):
        """A keyword that this validator does not know would be a rule that nobody checks."""
        unknown = set(schema) - KNOWN
        if unknown:
            raise ValueError(f"{where}: keywords {sorted(unknown)} are not checked by schema.py")
        for key in ("properties", "$defs"):
            for name, inner in schema.get(key, {}).items():
                self.check_schema(inner, f"{where}.{key}.{name}")
        for i, inner in enumerate(schema.get("anyOf", [])):
            self.check_schema(inner, f"{where}.anyOf[{i}]")
        for key in ("items", "additionalProperties"):
            if isinstance(schema.get(key), dict):
                self.check_schema(schema[key], f"{where}.{key}")

    def faults(self, value, schema=None, where="$"):
        schema = self.root if schema is None else schema
        if "$ref" in schema:
            return self.faults(value, self.root["$defs"][schema["$ref"].split("/")[-1]], where)
        types = schema.get("type", list(TYPES))
        types = types if isinstance(types, list) else [types]
        if not any(is_type(value, t) for t in types):
            return [f"{where}: expected {types}, found {value!r}"]
        found = []
        if "anyOf" in schema:
            each = [self.faults(value, one, where) for one in schema["anyOf"]]
            found += [] if [] in each else each[0]
        if "enum" in schema and value not in schema["enum"]:
            found.append(f"{where}: expected one of {schema['enum']}, found {value!r}")
        if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
            found.append(f"{where}: expected {schema['pattern']}, found {value!r}")
        if "minimum" in schema and is_type(value, "number") and value < schema["minimum"]:
            found.append(f"{where}: expected at least {schema['minimum']}, found {value}")
        if "maximum" in schema and is_type(value, "number") and value > schema["maximum"]:
            found.append(f"{where}: expected at most {schema['maximum']}, found {value}")
        if isinstance(value, str) and len(value) < schema.get("minLength", 0):
            found.append(f"{where}: expected {schema['minLength']} characters or more, found {value!r}")
        if isinstance(value, dict):
            low, high = schema.get("minProperties", 0), schema.get("maxProperties", len(value))
            if not low <= len(value) <= high:
                found.append(f"{where}: expected {low} to {high} members, found {sorted(value)}")
            found += self.object_faults(value, schema, where)
        if isinstance(value, list):
            low, high = schema.get("minItems", 0), schema.get("maxItems", len(value))
            if not low <= len(value) <= high:
                found.append(f"{where}: expected {low} to {high} elements, found {len(value)}")
            for i, one in enumerate(value):
                found += self.faults(one, schema.get("items", {}), f"{where}[{i}]")
        return found

    def object_faults(self, value, schema, where):
        found = [f"{where}: {name} is missing" for name in schema.get("required", [])
                 if name not in value]
        for name, inner in value.items():
            rule = schema.get("properties", {}).get(name, schema.get("additionalProperties", True))
            if rule is False:
                found.append(f"{where}: {name} is not expected")
            elif rule is not True:
                found += self.faults(inner, rule, f"{where}.{name}")
        return found


def self_test(path):
    validator = Validator.of_file(path)
    verdict = {"level": "device", "stage": "device", "decision": "decline", "reason": "driver",
               "page": "docs/reasons.md#driver", "text": "no driver"}
    good = {"octavo": "1.2.3", "config": "(no file)", "runs": None, "candidates": [
        {"id": "te", "chosen": False, "tried": True, "stages": [{"stage": "discovery", "result": "passed"}],
         "verdicts": [verdict]}]}
    planted = {
        "candidates is missing": {k: v for k, v in good.items() if k != "candidates"},
        "expected one of": {**good, "runs": "fp7"},
        "surprise is not expected": {**good, "surprise": 1},
        "expected ['string']": {**good, "config": 3},
        "$.candidates[0].verdicts[0]": {**good, "candidates": [
            {**good["candidates"][0], "verdicts": [{**verdict, "reason": "bad luck"}]}]},
    }
    wrong = [f"the good report: {f}" for f in validator.faults(good)]
    for message, report in planted.items():
        if not any(message in f for f in validator.faults(report)):
            wrong.append(f"expected a fault with '{message}', found {validator.faults(report)}")
    try:
        Validator({"type": "object", "oneOf": []})
        wrong.append("expected a schema with an unknown keyword to be refused")
    except ValueError:
        pass
    print("\n".join(wrong) or f"{len(planted)} planted faults were seen")
    sys.exit(1 if wrong else 0)


def check_output(path, command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    faults = Validator.of_file(path).faults(json.loads(done.stdout))
    sys.exit("\n".join(faults) if faults else 0)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] != "--self-test":
        check_output(sys.argv[1], sys.argv[2:])
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    self_test(sys.argv[2])
