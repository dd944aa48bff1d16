//! `/rules`: the rules that hold for everybody.

use authorization::Rules;
use axum::Json;
use axum::response::Response;
use control::{Expect, Put, RuleList, Stored};

use super::asked::{
    Asked, ChangeParams, Condition, Outcome, counted, mistakes, strings, tagged, texts,
};
use super::current::Current;
use crate::api::{AccessRules, NewAccessRules, RevisionNumber};
use crate::problem::{Kind, Problem};
use crate::routes::input::Body;

/// The path whose bodies may be long.
pub(crate) const RULES: &str = "/api/v1/rules";

/// Bytes of the longest body: 1 MiB of lines, and what JSON adds to them.
pub(crate) const LARGEST_RULES: usize = 2 << 20;

/// The rules that hold for everybody who is not judged by those of a user or a group, as this node has them.
#[utoipa::path(get, path = "/api/v1/rules", operation_id = "get_rules", tag = "access", params(("Control-Revision" = Option<u64>, Header, description = "Answer only when this node has this revision; it waits for 1 s, then 503 `not-ready`")), responses((status = 200, description = "All lines; `ETag` has the revision of the list", body = AccessRules)))]
pub(crate) async fn list(Current(access): Current) -> Response {
    let rules = access.view().rules();
    tagged(rules.revision, Json(row(&rules)))
}

/// Replaces the whole list of rules. `If-Match` is needed: the ETag of the list that was read, or `*` to replace any list.
/// Mistakes are told with their lines, and nothing is changed then.
#[utoipa::path(put, path = "/api/v1/rules", operation_id = "put_rules", tag = "access", params(ChangeParams), request_body = NewAccessRules, responses((status = 200, description = "The list; or what it would do (`dry_run`)", body = AccessRules)))]
pub(crate) async fn replace(
    asked: Asked,
    Body(body): Body<NewAccessRules>,
) -> Result<Response, Problem> {
    let before = asked.access.view().rules();
    let expect = match asked.condition {
        Condition::None => {
            let why = "the header If-Match is needed: the ETag of GET /api/v1/rules";
            let problem = Problem::new(Kind::InvalidParameter, why);
            return Err(problem.with("header", "if-match"));
        }
        // The list is there always. To the store, an empty one is none.
        Condition::Known => Expect::Any,
        Condition::Revision(revision)
            if revision == before.revision && before.record.0.is_empty() =>
        {
            Expect::New
        }
        Condition::New | Condition::Revision(_) => asked.expect(Expect::Any),
    };
    let list = RuleList(texts(body.lines));
    // A line that is two would shift the numbers of those behind it.
    if list.0.iter().all(|line| !line.contains('\n')) {
        Rules::parse(&list.0.join("\n")).map_err(|found| mistakes("/lines", &found))?;
    }
    match asked.make(expect, Put::Rules(list)).await? {
        Outcome::Dry(answer) => Ok(answer),
        Outcome::Made(made) => {
            let rules = asked.access.view().rules();
            let answer = Json(row(&rules));
            Ok(tagged(rules.revision, counted(&made, answer)))
        }
    }
}

fn row(rules: &Stored<RuleList>) -> AccessRules {
    let Stored { revision, record } = rules;
    AccessRules {
        revision: RevisionNumber(revision.0),
        lines: strings(&record.0),
    }
}
