//! The OpenAPI document: what the routes say of themselves, with what all of them have in common.

use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem, Ref,
    ResponseBuilder, Server,
};
use utoipa::{PartialSchema as _, ToSchema as _};

use crate::problem::Document;
use crate::rights::{COOKIE, Role};

const KEY: &str = "key";
const SESSION: &str = "session";

/// One document of all groups. `logins`: what needs no right.
pub(super) fn document(logins: OpenApi, groups: [(Role, OpenApi); 3]) -> OpenApi {
    let info = InfoBuilder::new()
        .title("HeraldMQ")
        .version("1")
        .description(Some(
            "Clients, sessions, subscriptions, shards, drops and nodes of a cluster, from any of its nodes. docs/operate/api.md \
             says how to use it. Fields, endpoints and values of enumerations may be added; a reader ignores what it does not \
             know. Refusals are problem documents (RFC 9457).",
        ))
        .build();
    let components = ComponentsBuilder::new()
        .security_scheme(
            KEY,
            SecurityScheme::Http(
                HttpBuilder::new()
                    .scheme(HttpAuthScheme::Bearer)
                    .description(Some(
                        "A key of `heraldmq api-key add`, or the token of http.tokenFile",
                    ))
                    .build(),
            ),
        )
        .security_scheme(
            SESSION,
            SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::with_description(
                COOKIE,
                "What /login has set; what is no GET also needs the header X-CSRF-Token",
            ))),
        )
        .schema(Document::name(), Document::schema())
        .build();
    let mut document = OpenApiBuilder::new()
        .info(info)
        // Paths begin with /api/v1.
        .servers(Some([Server::new("/")]))
        .components(Some(components))
        .build();
    let groups = groups.map(|(role, group)| (Some(role), group));
    for (role, mut group) in [(None, logins)].into_iter().chain(groups) {
        for item in group.paths.paths.values_mut() {
            for operation in operations(item) {
                complete(operation, role);
            }
        }
        document.merge(group);
    }
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.delete,
    ]
    .into_iter()
    .flatten()
}

/// Says which role an operation needs, if it does, and how it refuses.
fn complete(operation: &mut Operation, role: Option<Role>) {
    let needed = |role: Role| {
        let role = [role.name()];
        vec![
            SecurityRequirement::new(KEY, role),
            SecurityRequirement::new(SESSION, role),
        ]
    };
    operation.security = Some(role.map_or_else(Vec::new, needed));
    let refusal = ResponseBuilder::new()
        .description("A problem")
        .content(
            "application/problem+json",
            ContentBuilder::new()
                .schema(Some(Ref::from_schema_name(Document::name())))
                .build(),
        )
        .build();
    operation
        .responses
        .responses
        .insert("default".to_owned(), refusal.into());
}
