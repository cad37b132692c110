// Package credentials asks credential provider plugins for the credentials of images (KEP-2133),
// also with tokens of the pods' service accounts (KEP-4412).
//
// In: a CredentialProviderConfig (kubelet.config.k8s.io) in a file or a folder, and a folder of
// programs. Out: credentials for an image and a pod.
//
// Words. A plugin is a program of that folder. It reads a CredentialProviderRequest from its
// standard input, and writes a CredentialProviderResponse (credentialprovider.kubelet.k8s.io) to
// its standard output. Time, output and the number of kept answers are bounded.
package credentials
