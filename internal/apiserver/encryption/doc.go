// Package encryption keeps objects unreadable in the store (API reference, EncryptionConfiguration).
//
// It is a store.Store around another one: values are encrypted on their way in, by the first provider that the configuration names for
// their resource, and decrypted on their way out, by whichever provider their prefix names. Keys of the store, revisions and
// everything else pass. Formats are upstream's, so a store goes from one to the other; what carries no prefix was never encrypted.
//
// A value that a provider other than the first has written is stale: writing it again, even unchanged, encrypts it anew. That is
// how keys are rotated.
package encryption
