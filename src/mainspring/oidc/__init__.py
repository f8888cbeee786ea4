"""OpenID Connect: keys and endpoints of issuers, verification of their JWTs, sign-in with an authorization code."""
