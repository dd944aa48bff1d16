//! What nodes ask each other for people, and what they answer.

use inspection::{Answer, Asked};

/// Questions and answers as they are written.
const SEEDS: [&str; 2] = [
    include_str!("../../inspection/tests/golden/questions.txt"),
    include_str!("../../inspection/tests/golden/answers.txt"),
];

/// What is read can be written and read. It may be another number then, by the last bit of one that is no integer.
pub(crate) fn run(bytes: &[u8]) {
    if let Ok(asked) = Asked::decode(bytes) {
        Asked::decode(&asked.encode()).expect("what was read can be written and read");
    }
    if let Ok(answer) = Answer::decode(bytes) {
        Answer::decode(&answer.encode()).expect("what was read can be written and read");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let [questions, answers] = SEEDS;
    let of = |text: &'static str| text.lines().filter_map(|line| line.split_once('\t'));
    let asked = of(questions).map(|(_, question)| {
        let asked = format!(r#"{{"budget_ms":950,"question":{question}}}"#);
        asked.into_bytes()
    });
    let answered = of(answers).map(|(_, answer)| answer.as_bytes().to_vec());
    asked.chain(answered).collect()
}
