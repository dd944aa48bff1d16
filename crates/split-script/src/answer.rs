//! What a script may say: `()`, `#{ hold: "…" }` or `#{ at: slot, why: "…" }`.

use rhai::{Dynamic, Map};
use store::{ScriptAnswer, ScriptCause, ScriptFault, Why};
use store_state::api::Slot;

/// What is expected of an answer.
const EXPECTED: &str = "expected (), #{ hold: \"why\" } or #{ at: slot, why: \"why\" }";

/// Reads an answer.
pub(crate) fn read(answer: Dynamic) -> Result<ScriptAnswer, ScriptFault> {
    if answer.is_unit() {
        return Ok(ScriptAnswer::Hold(Why::new("")));
    }
    let kind = answer.type_name();
    let Some(mut map) = answer.try_cast::<Map>() else {
        return Err(nonsense(&format!("{EXPECTED}, found {kind}")));
    };
    let at = map.remove("at");
    let name = if at.is_some() { "why" } else { "hold" };
    let why = map.remove(name).map(|why| text(name, why));
    if let Some(other) = map.keys().next() {
        return Err(nonsense(&format!("{EXPECTED}, found the field {other}")));
    }
    match (at, why.transpose()?) {
        (Some(at), why) => Ok(ScriptAnswer::Split {
            at: slot(&at)?,
            why: why.unwrap_or_else(|| Why::new("")),
        }),
        (None, Some(why)) => Ok(ScriptAnswer::Hold(why)),
        (None, None) => Err(nonsense(&format!("{EXPECTED}, found an empty map"))),
    }
}

fn text(name: &str, value: Dynamic) -> Result<Why, ScriptFault> {
    let kind = value.type_name();
    let text = value.into_immutable_string();
    let text = text.map_err(|_| nonsense(&format!("expected a text as {name}, found {kind}")))?;
    Ok(Why::new(&text))
}

fn slot(at: &Dynamic) -> Result<Slot, ScriptFault> {
    let slot = at.as_int().ok().and_then(|at| u16::try_from(at).ok());
    let slot = slot.ok_or_else(|| {
        nonsense(&format!(
            "expected a slot from 1 to 65535 as at, found {at}"
        ))
    })?;
    Ok(Slot(slot))
}

fn nonsense(reason: &str) -> ScriptFault {
    ScriptFault {
        cause: ScriptCause::Answer,
        line: None,
        reason: Why::new(reason),
    }
}
