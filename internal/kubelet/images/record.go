package images

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// maxRecordBytes bounds a file of a record. A larger file counts as unreadable.
const maxRecordBytes = 1 << 20

// Kinds in the files (k8s.io/kubelet/config/v1beta1). Files of upstream's v1alpha1 have the same
// fields.
const (
	recordVersion  = "kubelet.config.k8s.io/v1beta1"
	alphaVersion   = "kubelet.config.k8s.io/v1alpha1"
	kindIntent     = "ImagePullIntent"
	kindPulled     = "ImagePulledRecord"
	maxRepository  = 100 // repositories in a record
	filePrefix     = "sha256-"
	fileNameLength = len(filePrefix) + 2*sha256.Size
)

// fileName is the name of the file about an image or a reference.
func fileName(of string) string { return fmt.Sprintf("%s%x", filePrefix, sha256.Sum256([]byte(of))) }

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: recordVersion, Kind: kind}
}

func checkType(t metav1.TypeMeta, kind string) error {
	if t.Kind != kind || t.APIVersion != recordVersion && t.APIVersion != alphaVersion {
		return fmt.Errorf("it is %q of %q, and not %s of %s", t.Kind, t.APIVersion, kind, recordVersion)
	}
	return nil
}

// parseIntent reads the content of the named file.
func parseIntent(name string, data []byte) (*kubeletconfig.ImagePullIntent, error) {
	i := &kubeletconfig.ImagePullIntent{}
	if err := json.Unmarshal(data, i); err != nil {
		return nil, err
	}
	if err := checkType(i.TypeMeta, kindIntent); err != nil {
		return nil, err
	}
	if fileName(i.Image) != name {
		return nil, fmt.Errorf("the name does not belong to image %q", i.Image)
	}
	return i, nil
}

// parsePulled reads the content of the named file.
func parsePulled(name string, data []byte) (*kubeletconfig.ImagePulledRecord, error) {
	r := &kubeletconfig.ImagePulledRecord{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	if err := checkType(r.TypeMeta, kindPulled); err != nil {
		return nil, err
	}
	if fileName(r.ImageRef) != name {
		return nil, fmt.Errorf("the name does not belong to imageRef %q", r.ImageRef)
	}
	for repository, c := range r.CredentialMapping {
		if c.NodePodsAccessible && len(c.KubernetesSecrets)+len(c.KubernetesServiceAccounts) > 0 {
			return nil, fmt.Errorf("credentialMapping[%q]: nodePodsAccessible excludes secrets and service accounts", repository)
		}
	}
	return r, nil
}

// readRecord reads a regular file up to the limit.
func readRecord(root *os.Root, name string) ([]byte, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecordBytes+1))
	if err == nil && len(data) > maxRecordBytes {
		err = fmt.Errorf("it has more than %d bytes", maxRecordBytes)
	}
	return data, err
}
