// Package encryption encrypts objects in the store (API reference, EncryptionConfiguration).
//
// It is a store.Store around another one. Values are encrypted by the first provider that the
// configuration names for their resource, and decrypted by the provider that their prefix names.
// Keys, revisions and everything else pass unchanged. The formats are upstream's, so that knarr and
// upstream can read each other's stores. A value without a prefix was never encrypted.
//
// A value that another provider than the first has encrypted is stale. Writing it again, even
// unchanged, encrypts it with the first one. Keys are rotated in this way.
package encryption
