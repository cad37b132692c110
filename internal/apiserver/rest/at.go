package rest

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/insight/timeline"
)

// travel reads the header Knarr-At. Only reads of stored objects may have it.
func (c *Call) travel() error {
	text := c.R.Header.Get(timeline.AtHeader)
	if text == "" {
		return nil
	}
	at, err := timeline.ParseTime(text, time.Now())
	switch {
	case err != nil:
		return apierrors.NewBadRequest(timeline.AtHeader + ": " + err.Error())
	case c.Info.Verb != "get" && c.Info.Verb != "list":
		return apierrors.NewBadRequest(fmt.Sprintf("%s: %s is not possible at another time: get and list are", timeline.AtHeader, c.Info.Verb))
	case c.Endpoint.Kind.Virtual || c.Info.Subresource != "" && c.Info.Subresource != "status":
		return apierrors.NewBadRequest(fmt.Sprintf("%s: the history of objects does not have %s", timeline.AtHeader, c.Info.GVR.Resource+slash(c.Info.Subresource)))
	case c.Engine.Past == nil:
		return apierrors.NewBadRequest(timeline.AtHeader + ": this server does not record the history of objects (--history-size=off)")
	}
	c.At = at
	c.W.Header().Set(timeline.AtHeader, at.UTC().Format(time.RFC3339))
	return nil
}

func slash(subresource string) string {
	if subresource == "" {
		return ""
	}
	return "/" + subresource
}

// RefuseTravel answers a request with the header Knarr-At to another server, which has no history.
func RefuseTravel(w http.ResponseWriter, r *http.Request) (refused bool) {
	text := r.Header.Get(timeline.AtHeader)
	if text == "" {
		return false
	}
	wire.RespondError(w, wire.ErrorFormat(r), apierrors.NewBadRequest(
		timeline.AtHeader+": "+strconv.Quote(text)+": objects of an extension server are not in the history"))
	return true
}
