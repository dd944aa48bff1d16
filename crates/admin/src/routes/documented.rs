//! The OpenAPI document: what the routes say of themselves, with what all of them have in common.

use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem, Ref,
    ResponseBuilder,
};
use utoipa::{PartialSchema as _, ToSchema as _};

use crate::problem::Document;
use crate::rights::Role;

const KEY: &str = "key";

/// One document of all groups.
pub(super) fn document(groups: [(Role, OpenApi); 3]) -> OpenApi {
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
        .schema(Document::name(), Document::schema())
        .build();
    let mut document = OpenApiBuilder::new()
        .info(info)
        .components(Some(components))
        .build();
    for (role, mut group) in groups {
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

/// Says which role an operation needs, and how it refuses.
fn complete(operation: &mut Operation, role: Role) {
    operation.security = Some(vec![SecurityRequirement::new(KEY, [role.name()])]);
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
