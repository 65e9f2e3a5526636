//! Checks JSON against the schemas of `cli/tests/schemas`: the words `type`, `enum`, `properties`,
//! `required`, `additionalProperties` and `items` of JSON Schema.

use serde_json::Value;

/// Parses each line, and checks it against the schema of that name.
#[track_caller]
pub(crate) fn checked(schema: &str, text: &str) -> Vec<Value> {
    let path = format!("{}/tests/schemas/{schema}.json", env!("CARGO_MANIFEST_DIR"));
    let schema = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let schema = serde_json::from_str(&schema).unwrap_or_else(|error| panic!("{path}: {error}"));
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    for line in &lines {
        check(&schema, line, "$");
    }
    lines
}

#[track_caller]
fn check(schema: &Value, value: &Value, path: &str) {
    for word in schema.as_object().expect("a schema is an object").keys() {
        let known = [
            "$schema",
            "title",
            "description",
            "type",
            "enum",
            "properties",
            "required",
            "additionalProperties",
            "items",
        ];
        assert!(known.contains(&word.as_str()), "the word {word} is not checked");
    }
    let is = |kind: &Value| match kind.as_str().expect("a name of a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the type {other} is not checked"),
    };
    match &schema["type"] {
        Value::Array(kinds) => {
            assert!(kinds.iter().any(is), "{path}: {value} is none of {kinds:?}");
        }
        Value::Null => {}
        kind => assert!(is(kind), "{path}: {value} is not of type {kind}"),
    }
    if let Value::Array(values) = &schema["enum"] {
        assert!(values.contains(value), "{path}: {value} is not in {values:?}");
    }
    for (index, element) in value.as_array().into_iter().flatten().enumerate() {
        check(&schema["items"], element, &format!("{path}[{index}]"));
    }
    if let Some(fields) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().expect("a name");
            assert!(fields.contains_key(name), "{path}: {name} is missing in {value}");
        }
        for (name, field) in fields {
            let known = schema["properties"].get(name);
            let known = known.unwrap_or_else(|| panic!("{path}: {name} is not in the schema"));
            check(known, field, &format!("{path}.{name}"));
        }
    }
}
