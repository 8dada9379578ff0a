//! Behaviour of the crate as a whole, on small graphs made by hand. `case_NN` names a behaviour
//! that must hold for every model.

mod bodies;
mod cutting;
mod external;
mod extraction;
mod preprocessing;
mod reading;
mod symbolic;
mod writing;

pub(crate) use symbolic::{same_answers, sized};
