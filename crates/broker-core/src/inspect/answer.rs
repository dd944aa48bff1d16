//! A loop answers.

use authorization::Action;
use mqtt_proto::ReasonCode;
use mqtt_session::{Timestamp, end_with_connection};
use net_api::Connections;

use super::memory;
use super::question::{
    Answer, End, Ended, INSPECTED, Inspection, MEMORY_SLICE, MatchingSession, Question,
    SUBSCRIPTIONS,
};
use super::view::{self, View};
use crate::clients::LoopIo;
use crate::dispatch::ClientLoop;
use crate::key::SessionKey;
use crate::rim::Rim;
use crate::traffic::Traffic;

/// Units of a turn for one session that is looked at: about what a small packet costs.
const UNITS: u32 = 1;

/// Answers a question.
pub(crate) fn answer(
    view: &View<'_>,
    traffic: &mut Traffic,
    io: &mut impl LoopIo,
    inspection: Inspection,
) {
    let Inspection { question, answer } = inspection;
    let found = |session: SessionKey| {
        (session.loop_index() == view.index)
            .then(|| view.clients.get(session.key()))
            .flatten()
    };
    let answered = match question {
        Question::Summaries(sessions) => {
            let sessions = sessions.into_iter().take(INSPECTED);
            let rows = sessions.filter_map(|session| {
                let client = found(session)?;
                Some((session, view::summary(view, io, session.key(), client)))
            });
            Answer::Summaries(rows.collect())
        }
        Question::LongestHeld(limit) => {
            let first = view
                .held
                .first(limit.min(INSPECTED), Timestamp(io.now_ms()));
            let rows = first.into_iter().filter_map(|key| {
                let client = view.clients.get(key)?;
                Some(view::summary(view, io, key, client))
            });
            Answer::LongestHeld(rows.collect())
        }
        Question::Detail(session) => {
            let detail = found(session).map(|client| view::detail(view, io, session.key(), client));
            Answer::Detail(detail.map(Box::new))
        }
        Question::Subscriptions {
            session,
            after,
            limit,
        } => {
            let limit = limit.min(SUBSCRIPTIONS);
            let rows = found(session).map(|client| view::subscriptions(client, &after, limit));
            Answer::Subscriptions(rows)
        }
        Question::Matching { sessions, topic } => {
            let sessions = sessions.into_iter().take(INSPECTED);
            let rows = sessions.filter_map(|session| {
                let client = found(session)?;
                Some(MatchingSession {
                    summary: view::summary(view, io, session.key(), client),
                    subscriptions: view::matching(client, &topic),
                    may_receive: view::verdict(view, io, client, Action::Receive, &topic),
                })
            });
            Answer::Matching(rows.collect())
        }
        Question::Verdict {
            session,
            action,
            topic,
        } => {
            let connected = found(session).filter(|client| client.connection.is_some());
            Answer::Verdict(connected.map(|client| {
                let verdict = view::verdict(view, io, client, action, &topic);
                let user = client.confirmed_user().map(str::to_owned);
                (verdict, user)
            }))
        }
        Question::Traffic(question) => {
            Answer::Traffic(traffic.answer(question, Timestamp(io.now_ms())))
        }
        Question::Memory(from) => Answer::Memory(Box::new(memory::memory(view, from))),
    };
    let looked_at = match &answered {
        Answer::Summaries(rows) => rows.len(),
        Answer::LongestHeld(rows) => rows.len(),
        Answer::Matching(rows) => rows.len() * 4,
        Answer::Detail(_) | Answer::Verdict(_) => 4,
        // Rows of a table, each a short name and some numbers.
        Answer::Traffic(_) => 8,
        // A few additions for each place.
        Answer::Memory(_) => MEMORY_SLICE as usize / 8,
        Answer::Subscriptions(rows) => 1 + rows.as_ref().map_or(0, Vec::len) / 4,
    };
    Connections::charge(io, UNITS * u32::try_from(looked_at).unwrap_or(u32::MAX));
    answer(answered);
}

/// Disconnects a client with 0x98, and has its session end with the connection if so asked.
pub(crate) fn end<R: Rim>(clients: &mut ClientLoop<R>, io: &mut impl LoopIo, end: End) {
    let key = end.session.key();
    let client = clients.clients.get_mut(key).filter(|client| {
        client.session.client_id() == &*end.client_id && client.connection.is_some()
    });
    let Some(client) = client else {
        return (end.answer)(Ended::default());
    };
    if end.ends_session {
        end_with_connection(&mut client.session);
    }
    let peer = client.connection.and_then(|id| io.peer(id));
    let address = peer.map(|peer| peer.to_string());
    clients.base.end(key, ReasonCode::AdministrativeAction);
    clients.carry_out(io);
    (end.answer)(Ended {
        disconnected: true,
        session_ended: end.ends_session,
        address,
    });
}
