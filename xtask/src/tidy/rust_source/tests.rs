use super::*;

#[test]
fn code_has_no_comments_and_literals() {
    let source = RustSource::new("let a = \"unwrap()\"; // .unwrap()\n");
    let code: Vec<_> = source.code().collect();
    assert_eq!(code, [(1, "let a = \"        \";             ")]);
    assert_eq!(source.comment(1), ".unwrap()");
}

#[test]
fn functions_have_their_body_counted() {
    let source = RustSource::new(
        "fn short() {}\n\
         trait T { fn none(&self); }\n\
         fn long(\n    a: [u8; 2],\n) -> Result<(), E>\nwhere\n    E: Fn(u8),\n{\n    \
         if a {\n    }\n}\n\
         type F = fn(u8);\n",
    );
    let told: Vec<_> = source
        .functions
        .iter()
        .map(|f| (f.name.as_str(), f.line, f.body_lines))
        .collect();
    assert_eq!(told, [("short", 1, 0), ("long", 3, 2)]);
}

#[test]
fn test_modules_are_test_code() {
    let source = RustSource::new(
        "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n\
         #[cfg(test)]\n#[path = \"x.rs\"]\nmod outside;\n",
    );
    let tests: Vec<usize> = (1..=9).filter(|line| source.is_test(*line)).collect();
    assert_eq!(tests, [2, 3, 4, 5, 7, 8, 9]);
    assert_eq!(source.test_modules, ["outside"]);
    assert_eq!(source.product_lines(), 2);
}

#[test]
fn excuses_stand_beside_or_above_the_statement() {
    let source = RustSource::new(
        "fn a() {\n    \
         let x = y // tidy: cannot fail\n        .unwrap();\n    \
         b.unwrap();\n    \
         // tidy: checked above\n    \
         b.unwrap();\n    \
         // tidy:\n    \
         b.unwrap();\n    \
         #[expect(\n        clippy::unwrap_used,\n        reason = \"why\"\n    )]\n    \
         b.unwrap();\n\
         }\n",
    );
    let excused: Vec<usize> = source
        .code()
        .filter(|(line, code)| code.contains("unwrap()") && source.is_excused(*line))
        .map(|(line, _)| line)
        .collect();
    assert_eq!(excused, [3, 6, 13]);
}
