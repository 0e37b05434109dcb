"""The routes of sign-ins. Beginning and ending one need no cookie, so they check by themselves whose request it is."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from shardkeep.protocol import routes
from shardkeep.protocol.messages import SignedIn, SignIn
from shardkeep_service.access import sign_in_service
from shardkeep_service.access.browser_cookie import clear_cookies, set_cookies
from shardkeep_service.access.browser_requests import BrowserRequests, check_one_cookie, client_address
from shardkeep_service.access.dependency import requires_sign_in
from shardkeep_service.access.gate import Gate
from shardkeep_service.access.sign_in_limit import SignInLimit
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["access"])

Context = Annotated[ServiceContext, Depends(get_context)]


@router.post(routes.SIGN_IN)
def sign_in(context: Context, body: SignIn, request: Request, response: Response) -> SignedIn:
    """Begins a sign-in of this browser with a token, and sets its cookie. One that the browser had ends."""
    browser: BrowserRequests = request.app.state.browser_requests
    limit: SignInLimit = request.app.state.sign_in_limit
    secure = browser.rules.check(request.headers, method=request.method)
    previous = browser.find_secret(request)
    check_one_cookie(previous)  # here the person sees the refusal; else each request after this one would be refused
    begun = sign_in_service.sign_in(
        context,
        limit,
        body.token.get_secret_value().strip(),
        address=client_address(request),
        previous=previous,
    )
    _forget(request)
    for cookie in set_cookies(begun.secret, secure=secure, seconds=begun.seconds):
        response.headers.append("set-cookie", cookie)
    return begun.answer


@router.get(routes.SIGN_IN, dependencies=[Depends(requires_sign_in)])
def get_sign_in(context: Context, request: Request) -> SignedIn:
    """Who is signed in in this browser, and the word that goes with the cookie."""
    browser: BrowserRequests = request.app.state.browser_requests
    return sign_in_service.signed_in(context, browser.secret_of(request))


@router.delete(routes.SIGN_IN, status_code=204)
def sign_out(context: Context, request: Request, response: Response) -> None:
    """Ends the sign-in of this browser and takes its cookie away. Nobody signed in: nothing changes."""
    browser: BrowserRequests = request.app.state.browser_requests
    browser.rules.check(request.headers, method=request.method)
    if browser.find_secret(request):  # of two cookies ours is taken away at least
        sign_in_service.sign_out(context, browser.secret_of(request), address=client_address(request))
        _forget(request)
    for cookie in clear_cookies():
        response.headers.append("set-cookie", cookie)


def _forget(request: Request) -> None:
    """What has ended counts for nothing from now on."""
    gate: Gate = request.app.state.gate
    gate.forget()
