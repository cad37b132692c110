// Package session lets the page in the browser act as its user, without a client certificate or a
// token in the browser (docs/adr/0089-the-page-is-files-and-the-api.md).
//
// Words. A link is a one-time code of a user, valid for a minute. A session is what a link is
// exchanged for: a cookie, valid for hours. The proof is what shows that the page itself made a
// request, and not another site: the header X-Knarr-UI and the browser's own headers about origins.
//
// In: POST LinksPath by an authenticated user; POST SessionPath with the code; requests with the
// cookie; DELETE SessionPath. Out: the user of the request, as the link's maker authenticated, with
// the session's id among its extra fields for the audit log.
//
// Codes and cookies are random numbers of 256 bits. The server keeps only their hashes, in memory:
// a session ends with the server, and other servers do not know it. The authenticator removes both
// from every request, so that neither logs nor proxied programs see them.
package session
