//! Requests are read from JSON objects alone. Left to itself, serde would also take an array with the fields in their order, and a wrong type would pass for a request.

use serde::{Deserializer, de::Visitor, forward_to_deserialize_any};

/// Reads whatever is asked for as an object.
pub(crate) struct FromObject<D>(pub(crate) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for FromObject<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// For types derived with `#[serde(remote = "Self")]`: what the derive made is used through `FromObject`.
macro_rules! objects {
    ($($name:ident)*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, to)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::deserialize(crate::object::FromObject(from))
            }
        }
    )*};
}
pub(crate) use objects;
