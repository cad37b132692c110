package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// continueToken has upstream's form, so that either server accepts the other's tokens. The key is
// relative to the listed prefix.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

const continueVersion = "meta.k8s.io/v1"

// EncodeContinue returns the token to continue after lastKey at the revision; -1 stands for the
// newest.
func EncodeContinue(lastKey, prefix string, revision int64) string {
	return encodeStart(lastKey+"\x00", prefix, revision)
}

func encodeStart(start, prefix string, revision int64) string {
	raw, err := json.Marshal(continueToken{continueVersion, revision, strings.TrimPrefix(start, prefix)})
	if err != nil {
		panic(err) // strings and a number
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// DecodeContinue returns the key to continue from and the revision of a continue token.
func DecodeContinue(token, prefix string) (from string, revision int64, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", 0, err
	}
	var t continueToken
	if err := json.Unmarshal(raw, &t); err != nil {
		return "", 0, err
	}
	switch {
	case t.APIVersion != continueVersion:
		return "", 0, fmt.Errorf("server does not recognize this encoded version %v", t.APIVersion)
	case t.ResourceVersion == 0:
		return "", 0, errors.New("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.StartKey == "":
		return "", 0, errors.New("encoded start key empty (version meta.k8s.io/v1)")
	}
	// A token must not lead out of the listed prefix.
	key := "/" + strings.TrimPrefix(t.StartKey, "/")
	if cleaned := path.Clean(key); cleaned != key && cleaned+"/" != key {
		return "", 0, fmt.Errorf("invalid start key: %s", t.StartKey)
	}
	return prefix + key[1:], t.ResourceVersion, nil
}

const expiredContinueMessage = "The provided continue parameter is too old " +
	"to display a consistent list result. You can start a new list without " +
	"the continue parameter, or use the continue token in this response to " +
	"retrieve the remainder of the results. Continuing with the provided " +
	"token results in an inconsistent list - objects that were created, " +
	"modified, or deleted between the time the first chunk was returned " +
	"and now may show up in the list."

// ExpiredContinue returns 410 with a token that continues in the newest state.
func ExpiredContinue(from, prefix string) error {
	err := apierrors.NewResourceExpired(expiredContinueMessage)
	err.ErrStatus.ListMeta.Continue = encodeStart(from, prefix, -1)
	return err
}
