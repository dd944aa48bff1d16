//! Tests of the session machine by dialogue and property.

mod anew;
mod connections;
mod crashes;
mod driver;
mod held;
mod model;
mod property;
mod split;
mod survey;
mod time;
mod users;
