package auth

// Remarks are notes about valid credentials that should be replaced: warnings for the client, and
// annotations for the audit log.
type Remarks struct {
	Warnings    []string
	Annotations map[string]string
}
