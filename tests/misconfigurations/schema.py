"""Validates JSON by docs/*.schema.json and `octavo config schema`, with Debian's python3-jsonschema.

  schema.py --self-test <schema>   checks the schema itself, and that planted faults are seen
  schema.py <schema> <command...>   checks what a command prints
"""
import json
import subprocess
import sys

import jsonschema

# What a schema may say here. jsonschema passes over a misspelt keyword, which would be a rule that nobody checks.
KNOWN = {"$schema", "$id", "$defs", "$ref", "title", "description", "default", "type", "enum", "pattern", "anyOf",
         "minimum", "maximum", "minLength", "properties", "required", "additionalProperties", "minProperties",
         "maxProperties", "items", "minItems", "maxItems"}


def check_keywords(schema, where="$"):
    if not isinstance(schema, dict):
        return
    if unknown := set(schema) - KNOWN:
        raise ValueError(f"{where}: expected known keywords, found {sorted(unknown)}")
    for key, inner in schema.items():
        if key in ("properties", "$defs"):
            for name, one in inner.items():
                check_keywords(one, f"{where}.{key}.{name}")
        elif key in ("items", "additionalProperties", "anyOf"):
            for one in inner if isinstance(inner, list) else [inner]:
                check_keywords(one, f"{where}.{key}")


class Validator:
    def __init__(self, schema):
        check_keywords(schema)
        jsonschema.Draft202012Validator.check_schema(schema)
        self.validator = jsonschema.Draft202012Validator(schema)

    @staticmethod
    def of_file(path):
        with open(path, encoding="utf-8") as file:
            return Validator(json.load(file))

    def faults(self, value):
        return [f"{fault.json_path}: {fault.message}" for fault in self.validator.iter_errors(value)]


def self_test(path):
    validator = Validator.of_file(path)
    verdict = {"level": "device", "stage": "device", "decision": "decline", "reason": "driver",
               "page": "docs/reasons.md#driver", "text": "no driver"}
    good = {"octavo": "1.2.3", "config": "(no file)", "runs": None, "candidates": [
        {"id": "te", "chosen": False, "tried": True, "stages": [{"stage": "discovery", "result": "passed"}],
         "verdicts": [verdict]}]}
    planted = {
        "'candidates' is a required property": {k: v for k, v in good.items() if k != "candidates"},
        "is not one of": {**good, "runs": "fp7"},
        "'surprise' was unexpected": {**good, "surprise": 1},
        "is not of type 'string'": {**good, "config": 3},
        "$.candidates[0].verdicts[0]": {**good, "candidates": [
            {**good["candidates"][0], "verdicts": [{**verdict, "reason": "bad luck"}]}]},
    }
    wrong = [f"the good report: {f}" for f in validator.faults(good)]
    for message, report in planted.items():
        if not any(message in f for f in validator.faults(report)):
            wrong.append(f"expected a fault with '{message}', found {validator.faults(report)}")
    for schema in ({"type": "object", "properties": {"a": {"requierd": ["b"]}}}, {"type": "objekt"}):
        try:
            Validator(schema)
            wrong.append(f"expected {schema} to be refused")
        except (ValueError, jsonschema.SchemaError):
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
