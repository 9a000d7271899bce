//! One fault in one message of one life, in a form that can be repeated.

use std::fmt;
use std::str::FromStr;

use crate::servers::relay::fault::{Strike, Way};
use crate::service::Service;
use crate::shape::Shape;

/// `SERVICE/SHAPE/WAY/N/FAULT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    pub(crate) service: Service,
    pub(crate) shape: &'static Shape,
    pub(crate) strike: Strike,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Strike { way, number, fault } = self.strike;
        write!(f, "{}/{}/{}/{number}/{fault}", self.service.name(), self.shape.name, way.name())
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("not SERVICE/SHAPE/WAY/N/FAULT: {text}");
        let [service, shape, way, number, fault] =
            text.split('/').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
        let way = Way::BOTH.into_iter().find(|one| one.name() == way).ok_or_else(wrong)?;
        let shape = Shape::named(shape).ok_or_else(wrong)?;
        let fault =
            shape.faults(way).iter().copied().find(|one| one.to_string() == fault).ok_or_else(wrong)?;
        Ok(Self {
            service: Service::named(service).ok_or_else(wrong)?,
            shape,
            strike: Strike { way, number: number.parse().map_err(|_| wrong())?, fault },
        })
    }
}
