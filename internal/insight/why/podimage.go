package why

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Causes of images that cannot be used.
const (
	causeImageMissing     = "image-not-found"
	causeImageDenied      = "image-denied"
	causeImageSecret      = "image-pull-secret"
	causeImageName        = "image-bad-name"
	causeImageNever       = "image-never-pulled"
	causeImageArch        = "image-architecture"
	causeRegistryGone     = "image-registry-unreachable"
	causeRegistryCert     = "image-registry-certificate"
	causeRegistryLimit    = "image-rate-limit"
	causeImagePull        = "image-pull"
	causeImageSlow        = "image-pull-slow"
	reasonErrImagePull    = "ErrImagePull"
	reasonImageBackOff    = "ImagePullBackOff"
	reasonInvalidImage    = "InvalidImageName"
	reasonImageNeverPull  = "ErrImageNeverPull"
	reasonConfigError     = "CreateContainerConfigError"
	reasonCreateError     = "CreateContainerError"
	reasonRunError        = "RunContainerError"
	reasonCrashLoop       = "CrashLoopBackOff"
	reasonCreating        = "ContainerCreating"
	reasonPodInitializing = "PodInitializing"
)

// pullErrors classify the message of a failed pull. Runtimes and registries have no codes for them;
// the words are those of containerd, CRI-O and the OCI distribution specification. A runtime says
// "does not exist" also about a repository that needs credentials, so denials come first.
var pullErrors = []struct {
	cause   string
	words   []string
	problem string
	remedy  string
}{
	{causeImageArch, []string{"no match for platform", "no matching manifest", "exec format error"}, "the image has no variant for the node's architecture.", "Build the image for this architecture, or select other nodes."},
	{causeRegistryLimit, []string{"toomanyrequests", "429 "}, "the registry refuses further pulls for a while: its rate limit is reached.", "Wait, authenticate, or use a mirror."},
	{causeRegistryCert, []string{"x509:", "certificate signed by unknown"}, "the registry's certificate is not trusted by the node.", "Add the registry's CA to the node, or correct the certificate."},
	{causeImageDenied, []string{"unauthorized", "denied", "authentication required", "401 ", "403 ", "no basic auth credentials"}, "the registry does not let the node pull the image.", "Add imagePullSecrets with the registry's credentials to the pod or its service account."},
	{causeImageMissing, []string{"not found", "manifest unknown", "manifest_unknown", "name unknown", "does not exist"}, "the image does not exist in the registry.", "Correct the image's name or tag, or push the image."},
	{causeRegistryGone, []string{"no such host", "connection refused", "i/o timeout", "deadline exceeded", "network is unreachable", "no route to host", "connection reset"}, "the node does not reach the registry.", "Check the registry's name, the node's DNS and its network, or use a mirror."},
}

// podImages explains containers whose image cannot be used.
func podImages(s *Snapshot, p *corev1.Pod) []Finding {
	var out []Finding
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.State.Waiting == nil {
			continue
		}
		fact := Fact{Text: "image " + c.Image + " of container " + c.Name + ": " + c.State.Waiting.Reason}
		if c.State.Waiting.Message != "" {
			fact.Text += ": " + oneLine(c.State.Waiting.Message)
		}
		var f Finding
		switch c.State.Waiting.Reason {
		case reasonInvalidImage:
			f = Finding{Cause: causeImageName, Problem: "container " + c.Name + ": its image name is not valid: " + c.Image + ".", Remedy: "Correct the image's name: [HOST/]PATH[:TAG][@DIGEST], in lower case."}
		case reasonImageNeverPull:
			f = Finding{
				Cause: causeImageNever, Problem: "container " + c.Name + ": the node does not have the image, and imagePullPolicy Never forbids to pull it.",
				Remedy: "Load the image into the node (`knarr image load`), or set imagePullPolicy: IfNotPresent.",
			}
		case reasonErrImagePull, reasonImageBackOff:
			f = pullFailure(s, p, &c)
		case reasonCreating, reasonPodInitializing:
			begun := pulling(s, p, c.Name)
			if begun == nil {
				continue
			}
			f = Finding{
				Cause: causeImageSlow, Problem: "container " + c.Name + ": the node has been pulling its image for " + age(s.Now.Sub(eventTime(begun))) + ".",
				Remedy: "Wait if the image is large. Otherwise check whether the node reaches the registry, or load the image into the node (`knarr image load`).",
			}
		default:
			continue
		}
		f.Evidence = append([]Fact{fact}, f.Evidence...)
		out = append(out, f)
	}
	return out
}

// slowPull is how long a pull takes before it is a finding.
const slowPull = 15 * time.Second

// pulling returns the event with which a pull for the container has begun if the pull takes long
// and has not ended, or nil.
func pulling(s *Snapshot, p *corev1.Pod, container string) *corev1.Event {
	for _, e := range s.events(refTo(p)) {
		if !strings.Contains(e.InvolvedObject.FieldPath, "{"+container+"}") {
			continue
		}
		if e.Reason == "Pulling" && s.Now.Sub(eventTime(e)) >= slowPull {
			return e
		}
		return nil
	}
	return nil
}

func pullFailure(s *Snapshot, p *corev1.Pod, c *corev1.ContainerStatus) Finding {
	message := c.State.Waiting.Message
	var facts []Fact
	for _, e := range s.events(refTo(p)) {
		if e.Reason == "Failed" && strings.Contains(e.Message, c.Image) {
			message += " " + e.Message
			facts = append(facts, Fact{Text: "event Failed: " + oneLine(e.Message)})
			break
		}
	}
	lower := strings.ToLower(message)
	for _, e := range pullErrors {
		if !slices.ContainsFunc(e.words, func(w string) bool { return strings.Contains(lower, w) }) {
			continue
		}
		f := Finding{Cause: e.cause, Problem: "container " + c.Name + ": " + e.problem, Remedy: e.remedy, Evidence: facts}
		if e.cause == causeImageDenied || e.cause == causeImageMissing {
			if secret, ok := missingPullSecret(s, p); ok {
				f.Cause, f.Problem = causeImageSecret, "container "+c.Name+": the image cannot be pulled, and the pod's pull secret does not exist."
				f.links = []Link{{Object: secret}}
			}
		}
		return f
	}
	return Finding{Cause: causeImagePull, Problem: "container " + c.Name + ": the image cannot be pulled.", Remedy: "Read the event's message; try `knarr image` or crictl on the node.", Evidence: facts}
}

func missingPullSecret(s *Snapshot, p *corev1.Pod) (Ref, bool) {
	for _, r := range p.Spec.ImagePullSecrets {
		if _, presence := get[*corev1.Secret](s, p.Namespace, r.Name); presence == Absent {
			return Ref{"Secret", p.Namespace, r.Name}, true
		}
	}
	return Ref{}, false
}
