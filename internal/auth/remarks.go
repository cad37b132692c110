package auth

// Remarks are what is to be told about credentials that are good, but should be others: to the client, and to the audit log.
type Remarks struct {
	Warnings    []string
	Annotations map[string]string
}
