// Package rotation replaces the cluster's authorities and service account keys on all servers,
// while both the old and the new one are trusted.
//
// Words. A Record says which certificates or keys are trusted, which one signs, and the Phase. It
// lies in the store under /knarr/authorities/NAME, with the private keys sealed (pki.Seal). Its
// Generation grows with each step. A Report says what one server has applied; it lies under
// /knarr/certificates/SERVER. A party lags if it has not applied the present Record.
//
// The phases of a rotation: in Trusting, the old one signs and both are trusted; in Signing, the
// new one signs and both are trusted; a Record that is Settled trusts one. A step is one
// compare-and-swap of the Record, and never goes back except from Trusting.
//
// In: steps by an administrator (Manager.Advance) and the store's Records. Out: the files in
// DIR/pki and the PKI in memory, which each server's Manager makes as the Record says. Applying is
// idempotent: a server that was killed, or was down for a whole rotation, applies the newest Record
// at its start.
//
// See docs/adr/0074-rotation-of-authorities.md.
package rotation
