//! Tests of the retain machine by dialogue and property.

mod ages;
mod driver;
mod fences;
mod limits;
mod property;
mod split;
mod survey;
mod tables;
mod wills;
