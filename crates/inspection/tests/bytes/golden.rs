//! The bytes of each question and each answer, with a value in each field, and with as little as there can be.
//!
//! `UPDATE_GENERATED=1 cargo test -p herald-inspection` writes the files: lines are added for new samples, and fields to lines. What
//! is in `golden/frozen-1` stays in them (`versions.rs`).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use inspection::{
    Answer, Asked, CpuProfile, MessagesAnswer, MessagesQuestion, ProfileAnswer, ProfileQuestion,
    Question, Refusal, Unreadable,
};

use crate::samples::{answers, cpu_profile, questions};

/// What a file has: a name, a tab, and the bytes, on each line.
fn compare<T>(file: &str, samples: &[(&'static str, T)], encode: impl Fn(&T) -> Vec<u8>) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let path = folder.join(file);
    let mut lines = String::new();
    for (name, sample) in samples {
        let json = String::from_utf8(encode(sample)).expect("JSON is UTF-8");
        writeln!(lines, "{name}\t{json}").expect("memory takes what is written to it");
    }
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(&path, &lines).expect("a file");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    for (written, line) in written.lines().zip(lines.lines()) {
        assert_eq!(written, line, "{}", path.display());
    }
    assert_eq!(written, lines, "{}", path.display());
}

/// A question as the golden file has it: without its time, which `asked` has.
fn encode(question: &Question) -> Vec<u8> {
    let asked = Asked {
        budget_ms: 950,
        question: question.clone(),
    };
    let bytes = asked.encode();
    assert_eq!(Asked::decode(&bytes), Ok(asked));
    let text = String::from_utf8(bytes).expect("JSON is UTF-8");
    let question = text.strip_prefix(r#"{"budget_ms":950,"question":"#);
    let question = question.and_then(|text| text.strip_suffix('}'));
    question.expect("a question with its time").into()
}

#[test]
fn questions_are_what_they_were() {
    compare("questions.txt", &questions(), encode);
}

#[test]
fn answers_are_what_they_were() {
    compare("answers.txt", &answers(), Answer::encode);
    for (name, answer) in answers() {
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer), "{name}");
    }
}

#[test]
fn a_cpu_profile_is_read_from_its_text() {
    let profile = cpu_profile();
    assert_eq!(CpuProfile::decode(&profile.encode()), Ok(profile));
    assert_eq!(CpuProfile::decode("{}"), Err(Unreadable::IllFormed));
}

#[test]
fn each_question_and_each_answer_has_a_sample() {
    let asked: BTreeSet<&str> = questions().iter().map(|(_, of)| question(of)).collect();
    assert_eq!(asked.len(), QUESTIONS, "{asked:?}");
    let answered: BTreeSet<&str> = answers().iter().map(|(_, of)| answer(of)).collect();
    assert_eq!(answered.len(), ANSWERS, "{answered:?}");
    // Names of lines begin with those of what they are samples of.
    for (name, of) in questions() {
        assert!(name.starts_with(question(&of)), "{name}");
    }
    for (name, of) in answers() {
        assert!(name.starts_with(answer(&of)), "{name}");
    }
}

/// Arms of [`question`], without that of questions about messages, and with those of [`about_messages`].
const QUESTIONS: usize = 41;

/// Arms of [`answer`], as [`QUESTIONS`].
const ANSWERS: usize = 45;

fn question(question: &Question) -> &'static str {
    match question {
        Question::Health => "health",
        Question::Shards => "shards",
        Question::Listeners => "listeners",
        Question::Clients(_) => "clients",
        Question::Client { .. } => "client",
        Question::Queues { .. } => "queues",
        Question::End { .. } => "end",
        Question::ChangeSubscription(_) => "change_subscription",
        Question::SubscriptionsOf { .. } => "subscriptions_of",
        Question::SharedGroups { .. } => "shared_groups",
        Question::Match { .. } => "match",
        Question::Drops(_) => "drops",
        Question::DropTotals => "drop_totals",
        Question::Settings { .. } => "settings",
        Question::Stats => "stats",
        Question::History { .. } => "history",
        Question::ShardHistory { .. } => "shard_history",
        Question::Events(_) => "events",
        Question::Messages(question) => about_messages(question),
        Question::ApiSession(_) => "api_session",
        Question::Acl(_) => "acl",
        Question::Change(_) => "change",
    }
}

fn about_messages(question: &MessagesQuestion) -> &'static str {
    match question {
        MessagesQuestion::Retained { .. } => "messages.retained",
        MessagesQuestion::Levels { .. } => "messages.levels",
        MessagesQuestion::Message { .. } => "messages.message",
        MessagesQuestion::FirstQueues { .. } => "messages.first_queues",
        MessagesQuestion::Waiting(_) => "messages.waiting",
        MessagesQuestion::Purge { .. } => "messages.purge",
        MessagesQuestion::BusyClients { .. } => "messages.busy_clients",
        MessagesQuestion::BusyTopics { .. } => "messages.busy_topics",
        MessagesQuestion::Watch { .. } => "messages.watch",
        MessagesQuestion::FailedLogins => "messages.failed_logins",
        MessagesQuestion::RefusedLogins { .. } => "messages.refused_logins",
        MessagesQuestion::EndedAlarms => "messages.ended_alarms",
        MessagesQuestion::SessionDrops { .. } => "messages.session_drops",
        MessagesQuestion::Holders { .. } => "messages.holders",
        MessagesQuestion::Members(_) => "messages.members",
        MessagesQuestion::Profile(question) => about_the_process(question),
        MessagesQuestion::Outlets => "messages.outlets",
    }
}

fn answer(answer: &Answer) -> &'static str {
    match answer {
        Answer::Health(_) => "health",
        Answer::Shards(_) => "shards",
        Answer::Listeners(_) => "listeners",
        Answer::Clients(_) => "clients",
        Answer::Client(_) => "client",
        Answer::Queues(_) => "queues",
        Answer::End(_) => "end",
        Answer::ChangeSubscription(_) => "change_subscription",
        Answer::SubscriptionsOf(_) => "subscriptions_of",
        Answer::SharedGroups(_) => "shared_groups",
        Answer::Match(_) => "match",
        Answer::Drops(_) => "drops",
        Answer::DropTotals(_) => "drop_totals",
        Answer::Settings(_) => "settings",
        Answer::Stats(_) => "stats",
        Answer::History(_) => "history",
        Answer::Events(_) => "events",
        Answer::Messages(answer) => of_messages(answer),
        Answer::ApiSession(_) => "api_session",
        Answer::Acl(_) => "acl",
        Answer::Change(_) => "change",
        Answer::Busy => "busy",
        Answer::Failed => "failed",
        Answer::NotKnown => "not_known",
    }
}

fn about_the_process(question: &ProfileQuestion) -> &'static str {
    match question {
        ProfileQuestion::Threads => "messages.profile_threads",
        ProfileQuestion::Memory => "messages.profile_memory",
        ProfileQuestion::BeginCpu { .. } => "messages.profile_begin_cpu",
        ProfileQuestion::Cpu { .. } => "messages.profile_cpu",
    }
}

fn of_the_process(answer: &Result<ProfileAnswer, Refusal>) -> &'static str {
    match answer {
        Ok(ProfileAnswer::Threads(_)) => "messages.profile_threads",
        Ok(ProfileAnswer::Memory(_)) => "messages.profile_memory",
        Ok(ProfileAnswer::CpuBegun { .. }) => "messages.profile_cpu_begun",
        Ok(ProfileAnswer::CpuGoesOn) => "messages.profile_cpu_goes_on",
        Ok(ProfileAnswer::Cpu { .. }) => "messages.profile_cpu_part",
        Err(_) => "messages.profile_refused",
    }
}

fn of_messages(answer: &MessagesAnswer) -> &'static str {
    match answer {
        MessagesAnswer::Retained(_) => "messages.retained",
        MessagesAnswer::Levels(_) => "messages.levels",
        MessagesAnswer::Message(_) => "messages.message",
        MessagesAnswer::FirstQueues(_) => "messages.first_queues",
        MessagesAnswer::Waiting(_) => "messages.waiting",
        MessagesAnswer::Purged(_) => "messages.purged",
        MessagesAnswer::Busy(_) => "messages.busy",
        MessagesAnswer::FailedLogins(_) => "messages.failed_logins",
        MessagesAnswer::RefusedLogins(_) => "messages.refused_logins",
        MessagesAnswer::EndedAlarms(_) => "messages.ended_alarms",
        MessagesAnswer::SessionDrops(_) => "messages.session_drops",
        MessagesAnswer::Holders(_) => "messages.holders",
        MessagesAnswer::Members(_) => "messages.members",
        MessagesAnswer::Watched(_) => "messages.watched",
        MessagesAnswer::Profile(answer) => of_the_process(answer),
        MessagesAnswer::Outlets(_) => "messages.outlets",
        MessagesAnswer::NotKnown => "messages.not_known",
    }
}
