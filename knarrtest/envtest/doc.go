// Package envtest has the interface of controller-runtime's package of the same name
// (sigs.k8s.io/controller-runtime/pkg/envtest, v0.24), with knarr behind it. A suite switches by
// its import:
//
//   - "sigs.k8s.io/controller-runtime/pkg/envtest"
//   - "github.com/knarr-project/knarr/knarrtest/envtest"
//
// [Environment.Start] starts a store and an API server in the test's process, without controllers
// and scheduler, as envtest does. Nothing is downloaded: the fields and variables that say where
// binaries are have no meaning here, and exist so that a suite compiles. Tests that want
// controllers, a scheduler or nodes use package knarrtest.
//
// Differences: ControlPlane has no Etcd and no paths of binaries; APIServer's arguments are the
// flags of `knarr apiserver`, which has most of kube-apiserver's, and an unknown one is an error of
// Start.
//
// The environment variables USE_EXISTING_CLUSTER and KUBEBUILDER_ATTACH_CONTROL_PLANE_OUTPUT mean
// what they mean there.
package envtest
