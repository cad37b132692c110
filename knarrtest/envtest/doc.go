// Package envtest has the interface of controller-runtime's package of the same name
// (sigs.k8s.io/controller-runtime/pkg/envtest, v0.24), implemented by knarr. A test suite switches
// by replacing the import
//   - "sigs.k8s.io/controller-runtime/pkg/envtest" by
//   - "github.com/knarr-project/knarr/knarrtest/envtest".
//
// [Environment.Start] starts a store and an API server in the test's process, without controllers
// and scheduler, like envtest. Nothing is downloaded: the fields and variables for the paths of
// binaries have no effect, and exist so that a suite compiles. Tests that need controllers, a
// scheduler or nodes use package knarrtest.
//
// Differences: ControlPlane has no Etcd and no paths of binaries. APIServer's arguments are the
// flags of `knarr apiserver`, which has most of kube-apiserver's. An unknown flag is an error of
// Start.
//
// The environment variables USE_EXISTING_CLUSTER and KUBEBUILDER_ATTACH_CONTROL_PLANE_OUTPUT have
// the same meaning as in the original.
package envtest
