//! What the data folder keeps of the cluster: which one it is, how far this node has come in it, and which
//! versions of the protocol the other members speak.

pub(crate) mod record;
pub(crate) mod spoken;
pub(crate) mod stamps;

/// The names of all files that this crate keeps in a data folder. They are those of a member: a node that begins anew needs none.
pub const FILES: [&str; 6] = [
    record::RECORD,
    record::ADDRESS,
    stamps::STAMPS,
    record::RECORD_COPY,
    stamps::STAMPS_COPY,
    spoken::SPOKEN,
];
